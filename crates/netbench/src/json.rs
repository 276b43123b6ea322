//! Results and status in JSON, as both programs print them.

use serde_json::{Map, Value};

use crate::outcome::{Interval, Load, TcpStatistics, Transfer, fairness};
use crate::server::Status;
use crate::{Direction, End, Latency, LatencySummary, Outcome, Spec};

/// The quantiles in the output, and their names.
pub const QUANTILES: [(f64, &str); 4] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99_9")];

/// Builds an object field by field: with less code than `json!`, which the agent's size shows.
#[derive(Debug, Default)]
struct Fields(Map<String, Value>);

impl Fields {
    #[inline(never)]
    fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    #[inline(never)]
    fn count(&mut self, name: &str, count: u64) {
        self.put(name, count.into());
    }

    /// Null where the number is not known.
    #[inline(never)]
    fn number(&mut self, name: &str, number: Option<f64>) {
        self.put(name, number.into());
    }

    #[inline(never)]
    fn text(&mut self, name: &str, text: &str) {
        self.put(name, text.into());
    }

    fn end(self) -> Value {
        Value::Object(self.0)
    }
}

/// The result of a test; with `histogram`, how often each latency was measured.
pub fn outcome(outcome: &Outcome, histogram: bool) -> Value {
    let spec = &outcome.spec;
    let mut object = Fields::default();
    object.text("test", spec.test.name());
    object.count("duration_us", spec.duration_us);
    object.count("warmup_us", spec.warmup_us);
    object.count("flows", u64::from(spec.flows));
    object.text("direction", direction(spec.direction));
    object.put("bidirectional", outcome.bidirectional.into());
    object.number("rate_per_s", spec.rate);
    let loop_ = if spec.rate.is_some() {
        "open"
    } else {
        "closed"
    };
    object.text("loop", loop_);
    object.count("lost", outcome.lost);
    object.count("unsent", outcome.unsent);
    object.count("unfinished", outcome.unfinished);
    object.put("ended_early", outcome.ended_early.as_deref().into());
    object.put("path_mtu", outcome.path_mtu.into());
    let late = outcome.late.as_ref().filter(|late| late.count() > 0);
    let late = late.map(|late| late.quantile(0.99));
    object.put("near", end(&outcome.near, late));
    let far = outcome.far.as_ref();
    object.put("far", far.map(|far| end(far, far.late_p99_ns)).into());
    match spec.test.has_messages() {
        true => object.count("message_bytes", u64::from(spec.message)),
        false => {
            object.count("request_bytes", u64::from(spec.request));
            object.count("response_bytes", u64::from(spec.response));
        }
    }
    if let Some(dscp) = spec.dscp {
        object.count("dscp", u64::from(dscp));
    }
    if let Some(bytes) = spec.bytes {
        object.count("asked_bytes", bytes);
    }
    if spec.rate.is_some() {
        object.number("rate_share", outcome.rate_share());
    }
    object.put("datagrams", datagrams(outcome));
    // A test in which nothing arrived has no rate.
    let figure = |value: f64| outcome.has_result().then_some(value);
    if let Some(transfer) = &outcome.transfer {
        object.number("mbps", figure(transfer.bits_per_s / 1e6));
        object.number("offered_mbps", Some(transfer.offered_bits_per_s / 1e6));
        object.number("loss_pct", transfer.loss.map(|loss| loss * 100.0));
    }
    if let Some(latency) = &outcome.latency {
        let rate = outcome.transactions_per_s().and_then(figure);
        object.number("transactions_per_s", rate);
        object.put("latency_us", times(latency));
        let [at_least, at_most] = bounds(outcome);
        object.put("latency_at_least_us", at_least);
        object.put("latency_at_most_us", at_most);
        if histogram {
            let counts = latency.counts();
            let pairs = counts.map(|(ns, count)| Value::Array(vec![ns.into(), count.into()]));
            object.put("latency_histogram_ns", Value::Array(pairs.collect()));
        }
    }
    if spec.flows > 1 {
        object.put("each_flow", flows(outcome));
    }
    if let Some(load) = &outcome.load {
        object.put("load", self::load(load));
    }
    object.end()
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

/// An interval of a running test.
pub fn interval(spec: &Spec, interval: &Interval) -> Value {
    let seconds = (interval.end - interval.begin).as_secs_f64().max(1e-9);
    let mut object = Fields::default();
    object.text("test", spec.test.name());
    object.text("direction", direction(interval.direction));
    object.number("begin_s", Some(interval.begin.as_secs_f64()));
    object.number("end_s", Some(interval.end.as_secs_f64()));
    object.count("bytes", interval.bytes);
    object.count("messages", interval.messages);
    if let Some(phase) = interval.phase {
        object.text("phase", phase.name());
    }
    match spec.test.streams() {
        true => object.number("mbps", Some(interval.bytes as f64 * 8e-6 / seconds)),
        false => {
            let LatencySummary {
                count,
                mean_ns,
                max_ns,
            } = interval.latency;
            object.number("transactions_per_s", Some(count as f64 / seconds));
            let us = |ns: f64| (count > 0).then_some(ns / 1e3);
            let mut latency = Fields::default();
            latency.number("mean", us(mean_ns));
            latency.number("max", us(max_ns as f64));
            object.put("latency_us", latency.end());
        }
    }
    if let Some(tcp) = &interval.tcp {
        object.count("retransmits", interval.retransmits);
        object.put("tcp", self::tcp(tcp));
        if spec.test.streams() {
            let end = match interval.direction {
                Direction::Up => "sender",
                Direction::Down => "receiver",
            };
            object.text("tcp_end", end);
        }
    }
    let mut outer = Fields::default();
    outer.put("interval", object.end());
    outer.end()
}

/// Each direction of datagrams, by their sequence numbers.
fn datagrams(outcome: &Outcome) -> Value {
    let mut object = Fields::default();
    let all = outcome.datagrams();
    for datagrams in &all {
        let arrivals = &datagrams.arrivals;
        let mut one = Fields::default();
        one.count("sent", datagrams.sent);
        one.count("received", arrivals.unique);
        one.count("lost", datagrams.lost());
        for (name, count) in [
            ("duplicates", arrivals.duplicates),
            ("reordered", arrivals.reordered),
            ("loss_bursts", arrivals.loss_bursts),
            ("longest_loss_burst", arrivals.longest_loss_burst),
        ] {
            let known = (!arrivals.unnumbered).then_some(count);
            one.put(name, known.into());
        }
        one.number("jitter_us", arrivals.jitter_ns.map(|ns| ns / 1e3));
        let name = datagrams.direction.map_or("round_trip", direction);
        object.put(name, one.end());
    }
    match all.is_empty() {
        true => Value::Null,
        false => object.end(),
    }
}

/// The lower and the upper bounds of the quantiles of all transactions that were due, where some of these have no time.
/// Null where all have one.
fn bounds(outcome: &Outcome) -> [Value; 2] {
    if outcome.bounds.count() == 0 {
        return [Value::Null, Value::Null];
    }
    let [mut at_least, mut at_most] = [Fields::default(), Fields::default()];
    for (share, name) in QUANTILES {
        let quantile = outcome.quantile(share);
        at_least.number(name, us(quantile.map(|it| it.ns)));
        at_most.number(name, us(quantile.and_then(|it| it.at_most)));
    }
    [at_least.end(), at_most.end()]
}

fn us(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e3)
}

/// The bytes of each flow, and how evenly they share the path.
fn flows(outcome: &Outcome) -> Value {
    let end = outcome.receiver().unwrap_or(&outcome.near);
    let seconds = (end.window_ns as f64 / 1e9).max(1e-9);
    let mut each = Vec::new();
    for (number, bytes) in end.flow_bytes.iter().enumerate() {
        let mut flow = Fields::default();
        flow.count("bytes", *bytes);
        flow.number("mbps", Some(*bytes as f64 * 8e-6 / seconds));
        if let Some(latency) = outcome.flow_latencies.get(number) {
            flow.count("transactions", latency.count());
            flow.number("p50_us", quantile(latency, 0.5));
            flow.number("p99_us", quantile(latency, 0.99));
        }
        each.push(flow.end());
    }
    let mut object = Fields::default();
    object.put("flows", Value::Array(each));
    object.number("fairness", fairness(&end.flow_bytes));
    object.end()
}

fn load(load: &Load) -> Value {
    let mbps = |transfer: &Option<Transfer>| transfer.map(|it| it.bits_per_s / 1e6);
    let mut object = Fields::default();
    object.count("flows", u64::from(load.flows));
    object.number("up_mbps", mbps(&load.up));
    object.number("down_mbps", mbps(&load.down));
    object.put(
        "idle_latency_us",
        load.idle.latency.as_ref().map(times).into(),
    );
    object.count("idle_lost", load.idle.lost);
    object.end()
}

/// Null where there was no transaction, because 0 would be the fastest time.
fn times(latency: &Latency) -> Value {
    let some = latency.count() > 0;
    let of = |ns: f64| some.then_some(ns / 1e3);
    let mut times = Fields::default();
    times.count("count", latency.count());
    times.number("min", of(latency.min() as f64));
    times.number("max", of(latency.max() as f64));
    times.number("mean", of(latency.mean()));
    for (share, name) in QUANTILES {
        times.number(name, quantile(latency, share));
    }
    times.end()
}

/// In microseconds; none where there was no transaction.
fn quantile(latency: &Latency, share: f64) -> Option<f64> {
    (latency.count() > 0).then(|| latency.quantile(share) as f64 / 1e3)
}

fn tcp(tcp: &TcpStatistics) -> Value {
    let mut object = Fields::default();
    object.count("connections", u64::from(tcp.connections));
    object.count("rtt_us", u64::from(tcp.rtt_us));
    object.count("rtt_variation_us", u64::from(tcp.rtt_variation_us));
    object.put("min_rtt_us", tcp.min_rtt_us.into());
    object.count("congestion_window_bytes", tcp.congestion_window_bytes);
    object.count("mss", u64::from(tcp.mss));
    object.text("congestion", &tcp.congestion);
    object.end()
}

/// What one end counted; with the 99th percentile of how late it began its messages.
fn end(end: &End, late_ns: Option<u64>) -> Value {
    let mut object = Fields::default();
    for (name, count) in [
        ("window_us", end.window_ns / 1000),
        ("bytes", end.bytes),
        ("messages", end.messages),
        ("all_bytes", end.all_bytes),
        ("all_messages", end.all_messages),
        ("process_cpu_us", end.cpu_ns / 1000),
        ("send_buffer_bytes", end.send_buffer),
        ("receive_buffer_bytes", end.receive_buffer),
        ("busy_poll_us", end.busy_poll_us.into()),
        ("send_errors", end.send_errors),
    ] {
        object.count(name, count);
    }
    let retransmits = end.tcp.as_ref().map(|tcp| tcp.retransmits);
    object.put("retransmits", retransmits.into());
    object.put("tcp", end.tcp.as_ref().map(tcp).into());
    object.number("late_us_p99", us(late_ns));
    object.end()
}

/// The counts of a server.
pub fn status(status: &Status) -> Value {
    let mut object = Fields::default();
    object.count("clients", status.clients as u64);
    object.count("tests", status.tests);
    object.count("broken", status.broken);
    object.count("refused", status.refused);
    object.count("strangers", status.strangers);
    object.end()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Test;

    #[test]
    fn intervals_name_their_phase_and_their_end_of_tcp() {
        let interval = |direction, phase| Interval {
            direction,
            phase,
            begin: Duration::ZERO,
            end: Duration::from_secs(1),
            bytes: 1,
            messages: 1,
            latency: LatencySummary::default(),
            retransmits: 0,
            tcp: Some(TcpStatistics::default()),
        };
        let of = |test, direction, phase| {
            let spec = Spec::new(test, Duration::from_secs(1));
            let mut said = super::interval(&spec, &interval(direction, phase));
            ["phase", "tcp_end"].map(|name| said["interval"][name].take())
        };
        use crate::Phase::{Idle, Loaded};
        assert_eq!(
            of(Test::TcpRr, Direction::Up, Some(Idle)),
            ["idle".into(), Value::Null]
        );
        assert_eq!(of(Test::TcpRr, Direction::Up, Some(Loaded))[0], "loaded");
        assert_eq!(
            of(Test::TcpStream, Direction::Up, None),
            [Value::Null, "sender".into()]
        );
        assert_eq!(of(Test::TcpStream, Direction::Down, None)[1], "receiver");
    }

    #[test]
    fn datagrams_without_number_have_no_duplicates() {
        let end = End {
            arrivals: crate::Arrivals {
                unique: 9,
                unnumbered: true,
                ..crate::Arrivals::default()
            },
            ..End::default()
        };
        let stream = Outcome {
            far: Some(end.clone()),
            ..Outcome::empty(&Spec::new(Test::UdpStream, Duration::from_secs(1)))
        };
        let said = datagrams(&stream);
        assert_eq!(
            (&said["up"]["received"], &said["up"]["duplicates"]),
            (&9.into(), &Value::Null)
        );
        let echo = Outcome {
            near: end,
            sent: 10,
            ..Outcome::empty(&Spec::new(Test::Icmp, Duration::from_secs(1)))
        };
        assert_eq!(datagrams(&echo)["round_trip"]["lost"], 1);
    }

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
