//! The results of a run, as text and as JSON.

use std::time::Duration;

use benchmarks::router::process::{Datagrams, Options, Report, RouteUpdates, Span, Timeline};
use router::gpu::cpu_fallback::FallbackStatus;
use serde_json::{Map, Value, json};
use stats::Histogram;

use crate::router::format::{mib, short};

pub(super) fn json(options: &Options, report: &Report) -> Value {
    let (total, tables) = (report.total(), report.tables);
    let verdicts: Map<String, Value> = total
        .counters
        .verdicts()
        .map(|(name, packets)| (name.to_owned(), packets.into()))
        .collect();
    let threads = report
        .threads
        .iter()
        .map(|thread| json!({"packets": thread.counters.packets, "elapsed_ns": thread.elapsed_ns}));
    let mut value = json!({
        "function": options.function.name(),
        "engine": options.engine.name(),
        "caution": options.engine.caution(),
        "batch": options.batch,
        "from": report.origin,
        "prefixes": {"v4": tables.prefixes.0, "v6": tables.prefixes.1},
        "rules": {"v4": tables.rules.0, "v6": tables.rules.1},
        "bytes": {"routes": tables.route_bytes, "rules": tables.rule_bytes},
        "packets": total.counters.packets,
        "frame_bytes": total.counters.bytes,
        "elapsed_ns": total.elapsed_ns,
        "packets_per_s": report.packets_per_s(),
        "gbps": report.gbit_per_s(),
        "ns_per_packet": total.per_packet(total.stages_ns()),
        "stages_ns_per_packet": {
            "gather": total.per_packet(total.gather_ns),
            "process": total.per_packet(total.process_ns),
            "scatter": total.per_packet(total.scatter_ns),
            "send": total.send_ns.map(|ns| total.per_packet(ns)),
        },
        "batch_latency_max_us": quantiles(&total.first),
        "batch_latency_min_us": quantiles(&total.last),
        "verdicts": verdicts,
        "first_batch_packets": total.first_batch,
        "rule_packets": report.rules,
        "written": report.written.map(
            |written| json!({"packets": written.packets, "ttl_expired": written.expired})
        ),
        "socket": report.datagrams.map(datagrams_json),
        "threads": threads.collect::<Vec<_>>(),
        "batches": total.batches,
        "partial_batches": total.partial,
    });
    value["rate_pps"] = options.pace.rate.map(|rate| rate.0).into();
    let wait = options.pace.batch_wait.map(|wait| wait.as_secs_f64() * 1e6);
    value["batch_wait_us"] = wait.into();
    value["updates"] = report.updates.as_ref().map(updates_json).into();
    let status = |status: &FallbackStatus| json!({"why": status.why, "batches": status.batches, "packets": status.packets});
    value["fallback"] = report.fallback_status.as_ref().map(status).into();
    value["timeline"] = report.timeline.as_ref().map(timeline_json).into();
    value
}

pub(super) fn text(options: &Options, report: &Report) -> String {
    let total = report.total();
    let mut text = head(options, report, total.elapsed_ns);
    text += &format!(
        "  {} packets/s   {:.2} Gbit/s of frames   {} ns per packet and thread\n",
        rate(report.packets_per_s()),
        report.gbit_per_s(),
        short(total.per_packet(total.stages_ns())),
    );
    text += "  of which";
    for (stage, ns) in [
        ("gather", Some(total.gather_ns)),
        ("process", Some(total.process_ns)),
        ("scatter", Some(total.scatter_ns)),
        ("send", total.send_ns),
    ] {
        let ns = ns.map_or_else(|| "-".to_owned(), |ns| short(total.per_packet(ns)));
        text += &format!("  {stage} {ns}");
    }
    text.push('\n');
    text += &latency("first packet of a batch", &total.first);
    text += &latency("last packet of a batch", &total.last);
    if let Some(timeline) = &report.timeline {
        text += &timeline_text(timeline);
    }
    text += &format!("  {} packets:", total.counters.packets);
    for (name, packets) in total
        .counters
        .verdicts()
        .filter(|(_, packets)| *packets > 0)
    {
        text += &format!("  {name} {packets}");
    }
    text.push('\n');
    if options.pace.rate.is_some() {
        text += &format!(
            "  {} batches, {} of them partial\n",
            total.batches, total.partial
        );
    }
    if let Some(updates) = &report.updates {
        text += &updates_text(updates);
    }
    if let Some(written) = report.written {
        text += &format!(
            "  written {}, not written for an expired TTL {}\n",
            written.packets, written.expired
        );
    }
    text + &report.datagrams.map_or_else(String::new, datagrams_text)
}

/// What was run.
fn head(options: &Options, report: &Report, elapsed_ns: u64) -> String {
    let tables = report.tables;
    let mut text = format!(
        "{}  {} + {} prefixes ({}), {} + {} rules ({})   {}\n{}   {} thread{}   batch {}   {:.1} s\n",
        options.function,
        tables.prefixes.0,
        tables.prefixes.1,
        mib(tables.route_bytes),
        tables.rules.0,
        tables.rules.1,
        mib(tables.rule_bytes),
        options.engine.name(),
        report.origin,
        report.threads.len(),
        if report.threads.len() == 1 { "" } else { "s" },
        options.batch,
        float(elapsed_ns) / 1e9,
    );
    if cfg!(debug_assertions) {
        text += "this is a debug build: a release build takes less\n";
    }
    if let Some(caution) = options.engine.caution() {
        text += &format!("{caution}\n");
    }
    if let Some(status) = &report.fallback_status {
        text += &format!(
            "{}: CPUs decided about {} of the packets, in {} batches\n",
            status.why, status.packets, status.batches
        );
    }
    text
}

fn datagrams_json(datagrams: Datagrams) -> Value {
    json!({
        "received": datagrams.received,
        "left": datagrams.unprocessed,
        "lost": datagrams.lost,
        "cut": datagrams.truncated,
        "sent": datagrams.sent,
        "refused": datagrams.refused,
        "ttl_expired": datagrams.expired,
    })
}

fn datagrams_text(datagrams: Datagrams) -> String {
    format!(
        "  datagrams: received {}, left {}, lost for want of room {}, cut {}, sent {}, refused {}, not sent for an expired TTL {}\n",
        datagrams.received,
        datagrams.unprocessed,
        datagrams.lost,
        datagrams.truncated,
        datagrams.sent,
        datagrams.refused,
        datagrams.expired
    )
}

fn updates_json(updates: &RouteUpdates) -> Value {
    json!({
        "changes": updates.changes,
        "us_per_change": us_each(updates.took, updates.changes),
        "device": updates.update_costs.map(|costs| json!({
            "batches": costs.times,
            "us_per_batch": us_each(costs.took, costs.times),
            "bytes": costs.bytes,
        })),
    })
}

fn updates_text(updates: &RouteUpdates) -> String {
    let mut text = format!(
        "  {} route changes meanwhile, {} us each",
        updates.changes,
        short(us_each(updates.took, updates.changes))
    );
    if let Some(costs) = updates.update_costs {
        text += &format!(
            "; {} batches took them to the device, {} us and {} bytes each",
            costs.times,
            short(us_each(costs.took, costs.times)),
            costs.bytes / costs.times.max(1)
        );
    }
    text + "\n"
}

fn us_each(time: Duration, times: u64) -> f64 {
    time.as_secs_f64() * 1e6 / float(times.max(1))
}

fn timeline_json(timeline: &Timeline) -> Value {
    let us = |ns: Option<f64>| ns.map(|ns| ns / 1e3);
    let span = |span: &Span| {
        let us = |ns: u64| float(ns) / 1e3;
        let (start, end) = (us(span.start_ns), us(span.end_ns));
        json!({"stream": span.stream, "part": span.part, "start_us": start, "end_us": end})
    };
    let spans = timeline.spans.as_ref();
    let spans = spans.map(|spans| spans.iter().map(span).collect::<Vec<_>>());
    json!({
        "batches": timeline.batches,
        "copy_in_us": us(timeline.copy_in_ns),
        "kernel_us": us(timeline.kernel_ns),
        "copy_out_us": us(timeline.copy_out_ns),
        "batch_us": us(timeline.batch_ns),
        "overlapped": timeline.overlapped,
        "kernel_floor_us": timeline.kernel_floor_ns / 1e3,
        "memory_gb_per_s": timeline.bandwidth,
        "spans": spans,
    })
}

fn timeline_text(timeline: &Timeline) -> String {
    let us =
        |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{} us", short(ns / 1e3)));
    let mut text = format!(
        "  by the device's clock, median of {} batches: copy in {}  kernels {}  copy out {}  together {}\n",
        timeline.batches,
        us(timeline.copy_in_ns),
        us(timeline.kernel_ns),
        us(timeline.copy_out_ns),
        us(timeline.batch_ns),
    );
    text += &format!(
        "  kernels move what takes {} us at the {} GB/s of the device's memory, or more",
        short(timeline.kernel_floor_ns / 1e3),
        short(timeline.bandwidth),
    );
    if let Some(share) = timeline.overlapped {
        text += &format!("; {:.0} % of copying beside kernels", 100.0 * share);
    }
    text + "\n"
}

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// In microseconds.
fn quantiles(histogram: &Histogram) -> Value {
    let mut value = json!({
        "min": histogram.min().map(|ns| float(ns) / 1e3),
        "max": histogram.max().map(|ns| float(ns) / 1e3),
    });
    for (name, q) in QUANTILES {
        value[name] = histogram.quantile(q).map(|ns| ns / 1e3).into();
    }
    value
}

fn latency(what: &str, histogram: &Histogram) -> String {
    let us = |ns: f64| short(ns / 1e3);
    let mut line = format!("  {what:<24}");
    for (name, q) in QUANTILES {
        let ns = histogram.quantile(q);
        line += &format!("  {name} {} us", ns.map_or_else(|| "-".to_owned(), us));
    }
    let most = histogram.max().map(|ns| us(float(ns)));
    line + &format!("  max {} us\n", most.unwrap_or_else(|| "-".to_owned()))
}

fn rate(packets: f64) -> String {
    if packets < 1e6 {
        format!("{:.0} k", packets / 1e3)
    } else {
        format!("{:.2} M", packets / 1e6)
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeline_is_in_microseconds() {
        let timeline = Timeline {
            batches: 1,
            copy_in_ns: Some(4000.0),
            kernel_floor_ns: 4000.0,
            overlapped: Some(0.5),
            spans: Some(vec![Span {
                stream: 1,
                part: "copy in",
                start_ns: 2000,
                end_ns: 4000,
            }]),
            ..Timeline::default()
        };
        let value = timeline_json(&timeline);
        assert_eq!(value["copy_in_us"], 4.0);
        assert!(value["copy_out_us"].is_null());
        assert_eq!(value["kernel_floor_us"], 4.0);
        assert_eq!(value["overlapped"], 0.5);
        assert_eq!(
            value["spans"][0],
            json!({"stream": 1, "part": "copy in", "start_us": 2.0, "end_us": 4.0})
        );
        let text = timeline_text(&timeline);
        assert!(text.contains("copy in 4.00 us  kernels -"), "{text}");
        assert!(text.contains("50 % of copying beside kernels"), "{text}");
    }
}
