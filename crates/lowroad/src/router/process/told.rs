//! What is told of a run.

use std::time::Duration;

use control::units::Pps;
use router::engine::Function;
use router::gpu::backed::Fallen;
use router::rules::{Counted, RuleSet, counted};
use serde_json::{Map, Value, json};
use stats::Histogram;

use super::measure::{Measured, float};
use super::socket::Exchanged;
use super::subject::Subject;
use super::timeline::Timeline;
use super::updates::Changed;

/// What was run.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) function: Function,
    pub(super) engine: String,
    /// What is to be known of the engine's times.
    pub(super) caution: Option<&'static str>,
    /// Of IPv4 and IPv6.
    pub(super) prefixes: (usize, usize),
    pub(super) rules: (usize, usize),
    pub(super) batch: usize,
    /// Of packets that do not come as fast as they are decided about.
    pub(super) rate: Option<Pps>,
    pub(super) batch_wait: Option<Duration>,
    /// Of the routes' and of the rules' structures.
    pub(super) bytes: (usize, usize),
}

/// A run, and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) about: About,
    pub(super) from: String,
    pub(super) threads: Vec<Measured>,
    pub(super) written: Option<Written>,
    /// Of datagrams.
    pub(super) exchanged: Option<Exchanged>,
    /// Rules that packets met, and none of them.
    pub(super) rules: Vec<Counted>,
    /// Routes that changed meanwhile.
    pub(super) changed: Option<Changed>,
    /// What CPUs did in a device's place.
    pub(super) fallen: Option<Fallen>,
    /// What the device timed afterwards.
    pub(super) timeline: Option<Timeline>,
}

/// What became of forwarded packets in a new capture.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) packets: u64,
    /// Their TTL was used up: a router leaves them to the kernel, which answers.
    pub(super) expired: u64,
}

impl Told {
    fn all(&self) -> Measured {
        let mut all = Measured::default();
        self.threads.iter().for_each(|thread| all.merge(thread));
        all
    }

    /// Each thread's rate, added up.
    fn packets_per_s(&self) -> f64 {
        self.threads.iter().map(Measured::packets_per_s).sum()
    }

    fn gbit_per_s(&self) -> f64 {
        let of = |thread: &Measured| {
            8.0 * float(thread.counters.bytes) / float(thread.elapsed_ns.max(1))
        };
        self.threads.iter().map(of).sum()
    }

    pub(super) fn json(&self) -> Value {
        let (about, all) = (&self.about, self.all());
        let verdicts: Map<String, Value> = all
            .counters
            .verdicts()
            .map(|(name, packets)| (name.to_owned(), packets.into()))
            .collect();
        let threads = self.threads.iter().map(
            |thread| json!({"packets": thread.counters.packets, "elapsed_ns": thread.elapsed_ns}),
        );
        let mut told = json!({
            "function": about.function.name(),
            "engine": about.engine,
            "caution": about.caution,
            "batch": about.batch,
            "from": self.from,
            "prefixes": {"v4": about.prefixes.0, "v6": about.prefixes.1},
            "rules": {"v4": about.rules.0, "v6": about.rules.1},
            "bytes": {"routes": about.bytes.0, "rules": about.bytes.1},
            "packets": all.counters.packets,
            "frame_bytes": all.counters.bytes,
            "elapsed_ns": all.elapsed_ns,
            "packets_per_s": self.packets_per_s(),
            "gbps": self.gbit_per_s(),
            "ns_per_packet": all.per_packet(all.stages_ns()),
            "stages_ns_per_packet": {
                "gather": all.per_packet(all.gather_ns),
                "process": all.per_packet(all.process_ns),
                "scatter": all.per_packet(all.scatter_ns),
                "send": all.send_ns.map(|ns| all.per_packet(ns)),
            },
            "batch_latency_max_us": quantiles(&all.first),
            "batch_latency_min_us": quantiles(&all.last),
            "verdicts": verdicts,
            "first_batch_packets": all.first_batch,
            "rule_packets": self.rules,
            "written": self.written.map(
                |written| json!({"packets": written.packets, "ttl_expired": written.expired})
            ),
            "socket": self.exchanged.map(Exchanged::json),
            "threads": threads.collect::<Vec<_>>(),
            "batches": all.batches,
            "partial_batches": all.partial,
        });
        told["rate_pps"] = about.rate.map(|rate| rate.0).into();
        let wait = about.batch_wait.map(|wait| wait.as_secs_f64() * 1e6);
        told["batch_wait_us"] = wait.into();
        told["updates"] = self.changed.as_ref().map(Changed::json).into();
        let fallen = |fallen: &Fallen| json!({"why": fallen.why, "batches": fallen.batches, "packets": fallen.packets});
        told["fallback"] = self.fallen.as_ref().map(fallen).into();
        told["timeline"] = self.timeline.as_ref().map(Timeline::json).into();
        told
    }

    pub(super) fn text(&self) -> String {
        let (about, all) = (&self.about, self.all());
        let (routes, rules) = about.bytes;
        let mut text = format!(
            "{}  {} + {} prefixes ({}), {} + {} rules ({})   {}\n{}   {} thread{}   batch {}   {:.1} s\n",
            about.function,
            about.prefixes.0,
            about.prefixes.1,
            mib(routes),
            about.rules.0,
            about.rules.1,
            mib(rules),
            about.engine,
            self.from,
            self.threads.len(),
            if self.threads.len() == 1 { "" } else { "s" },
            about.batch,
            float(all.elapsed_ns) / 1e9,
        );
        if cfg!(debug_assertions) {
            text += "this is a debug build: a release build takes less\n";
        }
        if let Some(caution) = about.caution {
            text += &format!("{caution}\n");
        }
        if let Some(fallen) = &self.fallen {
            text += &format!(
                "{}: CPUs decided about {} of the packets, in {} batches\n",
                fallen.why, fallen.packets, fallen.batches
            );
        }
        text += &format!(
            "  {} packets/s   {:.2} Gbit/s of frames   {} ns per packet and thread\n",
            rate(self.packets_per_s()),
            self.gbit_per_s(),
            short(all.per_packet(all.stages_ns())),
        );
        text += "  of which";
        for (stage, ns) in [
            ("gather", Some(all.gather_ns)),
            ("process", Some(all.process_ns)),
            ("scatter", Some(all.scatter_ns)),
            ("send", all.send_ns),
        ] {
            let ns = ns.map_or_else(|| "-".to_owned(), |ns| short(all.per_packet(ns)));
            text += &format!("  {stage} {ns}");
        }
        text.push('\n');
        text += &latency("first packet of a batch", &all.first);
        text += &latency("last packet of a batch", &all.last);
        text += &self
            .timeline
            .as_ref()
            .map_or_else(String::new, Timeline::text);
        text += &format!("  {} packets:", all.counters.packets);
        for (name, packets) in all.counters.verdicts().filter(|(_, packets)| *packets > 0) {
            text += &format!("  {name} {packets}");
        }
        text.push('\n');
        if about.rate.is_some() {
            text += &format!(
                "  {} batches, {} of them partial\n",
                all.batches, all.partial
            );
        }
        text += &self
            .changed
            .as_ref()
            .map_or_else(String::new, Changed::text);
        if let Some(written) = self.written {
            text += &format!(
                "  written {}, not written for an expired TTL {}\n",
                written.packets, written.expired
            );
        }
        text + &self.exchanged.map_or_else(String::new, Exchanged::text)
    }
}

impl Exchanged {
    fn json(self) -> Value {
        json!({
            "received": self.received, "left": self.left, "lost": self.lost, "cut": self.cut,
            "sent": self.sent, "refused": self.refused, "ttl_expired": self.expired,
        })
    }

    fn text(self) -> String {
        format!(
            "  datagrams: received {}, left {}, lost for want of room {}, cut {}, sent {}, refused {}, not sent for an expired TTL {}\n",
            self.received, self.left, self.lost, self.cut, self.sent, self.refused, self.expired
        )
    }
}

/// Rules, in so far as packets met them.
pub(super) fn met(set: &RuleSet, tables: &impl Subject) -> Vec<Counted> {
    let mut rules = counted(set, Some(&tables.hits()));
    rules.retain(|rule| rule.packets.is_some_and(|packets| packets > 0));
    rules
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

/// Three digits or more.
pub(in crate::router) fn short(value: f64) -> String {
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$}")
}

pub(in crate::router) fn mib(bytes: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.1} MiB")
}

fn rate(packets: f64) -> String {
    if packets < 1e6 {
        format!("{:.0} k", packets / 1e3)
    } else {
        format!("{:.2} M", packets / 1e6)
    }
}
