//! Results and status in JSON, as both programs print them.

use serde_json::{Value, json};

use crate::outcome::{Interval, Load, TcpStatistics, Transfer, fairness};
use crate::server::Status;
use crate::{Direction, End, Latency, LatencySummary, Outcome, Spec};

/// The quantiles in the output, and their names.
pub const QUANTILES: [(f64, &str); 4] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99_9")];

/// The result of a test; with `histogram`, how often each latency was measured.
pub fn outcome(outcome: &Outcome, histogram: bool) -> Value {
    let spec = &outcome.spec;
    let mut object = json!({
        "test": spec.test, "duration_us": spec.duration_us, "warmup_us": spec.warmup_us, "flows": spec.flows,
        "direction": spec.direction, "bidirectional": outcome.bidirectional, "rate_per_s": spec.rate,
        "loop": if spec.rate.is_some() { "open" } else { "closed" },
        "lost": outcome.lost, "unsent": outcome.unsent, "unfinished": outcome.unfinished,
        "ended_early": outcome.ended_early, "path_mtu": outcome.path_mtu,
        "near": end(&outcome.near), "far": outcome.far.as_ref().map(end),
    });
    let mut put = |name: &str, value: Value| object[name] = value;
    match spec.test.has_messages() {
        true => put("message_bytes", spec.message.into()),
        false => {
            put("request_bytes", spec.request.into());
            put("response_bytes", spec.response.into());
        }
    }
    if let Some(dscp) = spec.dscp {
        put("dscp", dscp.into());
    }
    if let Some(bytes) = spec.bytes {
        put("asked_bytes", bytes.into());
    }
    if spec.rate.is_some() {
        put("rate_share", outcome.rate_share().into());
    }
    let late = outcome.late.as_ref().and_then(|late| quantile(late, 0.99));
    put("datagrams", datagrams(outcome));
    if let Some(transfer) = &outcome.transfer {
        // A test in which nothing arrived has no rate.
        let some = outcome.has_result();
        let figure = |value: f64| some.then_some(value);
        put("mbps", figure(transfer.bits_per_s / 1e6).into());
        put("offered_mbps", (transfer.offered_bits_per_s / 1e6).into());
        put("loss_pct", transfer.loss.map(|loss| loss * 100.0).into());
    }
    if let Some(latency) = &outcome.latency {
        let rate = outcome
            .transactions_per_s()
            .filter(|_| outcome.has_result());
        put("transactions_per_s", rate.into());
        put("latency_us", times(latency));
        put("latency_at_least_us", bounds(outcome));
        if histogram {
            put(
                "latency_histogram_ns",
                json!(latency.counts().collect::<Vec<_>>()),
            );
        }
    }
    if spec.flows > 1 {
        put("each_flow", flows(outcome));
    }
    if let Some(load) = &outcome.load {
        put("load", self::load(load));
    }
    object["near"]["late_us_p99"] = json!(late);
    object
}

/// An interval of a running test.
pub fn interval(spec: &Spec, interval: &Interval) -> Value {
    let seconds = (interval.end - interval.begin).as_secs_f64().max(1e-9);
    let mut object = json!({
        "test": spec.test, "direction": interval.direction,
        "begin_s": interval.begin.as_secs_f64(), "end_s": interval.end.as_secs_f64(),
        "bytes": interval.bytes, "messages": interval.messages,
    });
    let mut put = |name: &str, value: Value| object[name] = value;
    match spec.test.streams() {
        true => put("mbps", (interval.bytes as f64 * 8e-6 / seconds).into()),
        false => {
            let LatencySummary {
                count,
                mean_ns,
                max_ns,
            } = interval.latency;
            put("transactions_per_s", (count as f64 / seconds).into());
            let some = count > 0;
            let us = |ns: f64| some.then_some(ns / 1e3);
            let latency = json!({ "mean": us(mean_ns), "max": us(max_ns as f64) });
            put("latency_us", latency);
        }
    }
    if let Some(tcp) = &interval.tcp {
        put("retransmits", interval.retransmits.into());
        put("tcp", self::tcp(tcp));
    }
    json!({ "interval": object })
}

/// Each direction of datagrams, by their sequence numbers.
fn datagrams(outcome: &Outcome) -> Value {
    let mut object = json!({});
    for datagrams in outcome.datagrams() {
        let arrivals = &datagrams.arrivals;
        let name = match datagrams.direction {
            Direction::Up => "up",
            Direction::Down => "down",
        };
        object[name] = json!({
            "sent": datagrams.sent, "received": arrivals.unique, "lost": datagrams.lost(),
            "duplicates": arrivals.duplicates, "reordered": arrivals.reordered,
            "loss_bursts": arrivals.loss_bursts, "longest_loss_burst": arrivals.longest_loss_burst,
            "jitter_us": arrivals.jitter_ns.map(|ns| ns / 1e3),
        });
    }
    match object.as_object().is_some_and(|object| object.is_empty()) {
        true => Value::Null,
        false => object,
    }
}

/// The quantiles of all transactions that were due, where some of these have no time. Null where all have one.
fn bounds(outcome: &Outcome) -> Value {
    if outcome.bounds.count() == 0 {
        return Value::Null;
    }
    let mut object = json!({});
    for (share, name) in QUANTILES {
        let quantile = outcome.quantile(share);
        object[name] = json!(quantile.map(|it| it.ns as f64 / 1e3));
    }
    object
}

/// The bytes of each flow, and how evenly they share the path.
fn flows(outcome: &Outcome) -> Value {
    let end = outcome.receiver().unwrap_or(&outcome.near);
    let seconds = (end.window_ns as f64 / 1e9).max(1e-9);
    let mut each = Vec::new();
    for (number, bytes) in end.flow_bytes.iter().enumerate() {
        let mut flow = json!({ "bytes": bytes, "mbps": *bytes as f64 * 8e-6 / seconds });
        if let Some(latency) = outcome.flow_latencies.get(number) {
            flow["transactions"] = latency.count().into();
            flow["p50_us"] = json!(quantile(latency, 0.5));
            flow["p99_us"] = json!(quantile(latency, 0.99));
        }
        each.push(flow);
    }
    json!({ "flows": each, "fairness": fairness(&end.flow_bytes) })
}

fn load(load: &Load) -> Value {
    let mbps = |transfer: &Option<Transfer>| transfer.map(|it| it.bits_per_s / 1e6);
    let idle = load.idle.latency.as_ref().map(times);
    json!({
        "flows": load.flows, "up_mbps": mbps(&load.up), "down_mbps": mbps(&load.down),
        "idle_latency_us": idle, "idle_lost": load.idle.lost,
    })
}

/// Null where there was no transaction, because 0 would be the fastest time.
fn times(latency: &Latency) -> Value {
    let some = latency.count() > 0;
    let of = |ns: f64| some.then_some(ns / 1e3);
    let mut times = json!({
        "count": latency.count(), "min": of(latency.min() as f64), "max": of(latency.max() as f64),
        "mean": of(latency.mean()),
    });
    for (share, name) in QUANTILES {
        times[name] = json!(quantile(latency, share));
    }
    times
}

/// In microseconds; none where there was no transaction.
fn quantile(latency: &Latency, share: f64) -> Option<f64> {
    (latency.count() > 0).then(|| latency.quantile(share) as f64 / 1e3)
}

fn tcp(tcp: &TcpStatistics) -> Value {
    json!({
        "connections": tcp.connections, "rtt_us": tcp.rtt_us, "rtt_variation_us": tcp.rtt_variation_us,
        "min_rtt_us": tcp.min_rtt_us, "congestion_window_bytes": tcp.congestion_window_bytes, "mss": tcp.mss,
        "congestion": tcp.congestion,
    })
}

fn end(end: &End) -> Value {
    json!({
        "window_us": end.window_ns / 1000, "bytes": end.bytes, "messages": end.messages,
        "all_bytes": end.all_bytes, "all_messages": end.all_messages,
        "process_cpu_us": end.cpu_ns / 1000, "send_buffer_bytes": end.send_buffer,
        "receive_buffer_bytes": end.receive_buffer, "busy_poll_us": end.busy_poll_us,
        "send_errors": end.send_errors, "retransmits": end.tcp.as_ref().map(|tcp| tcp.retransmits),
        "tcp": end.tcp.as_ref().map(tcp),
    })
}

/// The counts of a server.
pub fn status(status: &Status) -> Value {
    json!({
        "clients": status.clients, "tests": status.tests, "broken": status.broken,
        "refused": status.refused, "strangers": status.strangers,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Test;

    #[test]
    fn times_are_null_without_transactions() {
        let nothing = Outcome {
            latency: Some(Latency::new()),
            lost: 1,
            late: Some(Latency::new()),
            ..Outcome::empty(&Spec::new(Test::UdpRr, Duration::from_secs(1)))
        };
        let said = outcome(&nothing, true);
        let times = said["latency_us"].as_object().map(|times| times.values());
        let known: Vec<_> = times
            .into_iter()
            .flatten()
            .filter(|it| !it.is_null())
            .collect();
        assert_eq!(known, [0]);
        assert!(said["near"]["late_us_p99"].is_null());
        assert!(said["transactions_per_s"].is_null() && said["datagrams"].is_null());
    }
}
