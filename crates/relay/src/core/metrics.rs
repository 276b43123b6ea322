//! The metrics of the relay: the counts of [`StreamView`], with the labels `stream`, `subscriber` and `reason`.

use std::collections::BTreeMap;

use control::metrics::MetricSet;

use super::view::{StreamView, SubscriberView, name};
use crate::counters::{DropReason, Drops};

/// The metrics of all streams.
pub(super) fn metrics(views: &[StreamView]) -> MetricSet {
    let mut metrics = MetricSet::new();
    for view in views {
        add_stream(&mut metrics, view);
    }
    metrics
}

fn add_stream(metrics: &mut MetricSet, view: &StreamView) {
    let stream = ("stream", view.stream.as_str());
    for (name, help, count) in [
        (
            "lowroad_relay_received_packets_total",
            "Datagrams that reached the ingest of the stream.",
            view.received.packets,
        ),
        (
            "lowroad_relay_received_bytes_total",
            "UDP payload bytes of the datagrams that reached the ingest.",
            view.received.bytes,
        ),
        (
            "lowroad_relay_forwarded_packets_total",
            "Datagrams offered to the subscribers of the stream.",
            view.forwarded.packets,
        ),
        (
            "lowroad_relay_lost_copies_total",
            "Copies for subscribers on this machine that did not reach userspace.",
            view.copies_lost,
        ),
    ] {
        metrics.counter(name, help).sample(&[stream], count);
    }
    let help = "Datagrams refused before they were copied, by reason.";
    let refused = metrics.counter("lowroad_relay_refused_packets_total", help);
    for (reason, packets) in by_reason(&view.drops, &DropReason::OF_STREAMS) {
        refused.sample(&[stream, ("reason", &name(reason))], packets);
    }
    for view in &view.subscribers {
        add_subscriber(metrics, stream, view);
    }
}

fn add_subscriber(metrics: &mut MetricSet, stream: (&str, &str), view: &SubscriberView) {
    let subscriber = ("subscriber", view.subscriber.as_str());
    metrics
        .counter(
            "lowroad_relay_delivered_packets_total",
            "Copies sent to the subscriber.",
        )
        .sample(&[stream, subscriber], view.delivered.packets);
    metrics
        .counter(
            "lowroad_relay_delivered_bytes_total",
            "UDP payload bytes of the copies sent to the subscriber.",
        )
        .sample(&[stream, subscriber], view.delivered.bytes);
    let help = "Copies for the subscriber that were not sent, by reason.";
    let dropped = metrics.counter("lowroad_relay_dropped_packets_total", help);
    for (reason, packets) in by_reason(&view.drops, &DropReason::OF_SUBSCRIBERS) {
        dropped.sample(&[stream, subscriber, ("reason", &name(reason))], packets);
    }
}

/// A series that appears only with its first drop hides that drop from `rate()`, so reasons that have not occurred are 0.
fn by_reason(drops: &Drops, reasons: &[DropReason]) -> BTreeMap<DropReason, u64> {
    let mut counts: BTreeMap<_, _> = reasons.iter().map(|reason| (*reason, 0)).collect();
    counts.extend(&drops.0);
    counts
}

#[cfg(test)]
mod tests {
    use control::metrics::Format;

    use super::*;
    use crate::counters::Traffic;

    #[test]
    fn drops_of_every_reason_have_a_series_before_they_occur() {
        let mut drops = Drops::default();
        drops.add(DropReason::TooBig, 18);
        let view = StreamView {
            stream: "cam1".into(),
            listen: "192.0.2.1:5004".parse().unwrap(),
            datapath: Some("xdp".into()),
            received: Traffic::default(),
            forwarded: Traffic::default(),
            passed_packets: 0,
            drops: Drops::default(),
            copies_lost: 3,
            latched: None,
            subscribers: vec![SubscriberView {
                subscriber: "edge \"1\"".into(),
                to: "198.51.100.4:6002".parse().unwrap(),
                from: "192.0.2.1:5004".parse().unwrap(),
                delivered: Traffic::default(),
                drops,
            }],
        };
        let mut metrics = MetricSet::new();
        add_stream(&mut metrics, &view);
        let page = metrics.encode(Format::Prometheus);
        let edge = "stream=\"cam1\",subscriber=\"edge \\\"1\\\"\"";
        for sample in [
            "lowroad_relay_lost_copies_total{stream=\"cam1\"} 3".to_owned(),
            "lowroad_relay_refused_packets_total{stream=\"cam1\",reason=\"source_denied\"} 0"
                .to_owned(),
            format!("lowroad_relay_dropped_packets_total{{{edge},reason=\"too_big\"}} 18"),
            format!("lowroad_relay_dropped_packets_total{{{edge},reason=\"transmit\"}} 0"),
        ] {
            assert!(page.lines().any(|line| line == sample), "{sample}: {page}");
        }
    }

    #[test]
    fn each_reason_is_of_streams_or_of_subscribers() {
        let mut reasons = [&DropReason::OF_STREAMS[..], &DropReason::OF_SUBSCRIBERS].concat();
        reasons.sort();
        assert_eq!(reasons, DropReason::ALL);
    }
}
