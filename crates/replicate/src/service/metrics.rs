//! The metrics of a service: the [`Status`] of its parts, with the labels `part` and `kind`.

use std::collections::BTreeMap;
use std::time::Duration;

use control::metrics::MetricSet;

use super::apply::Done;
use super::capture::CaptureProgress;
use super::check::CheckReport;
use super::freezer::Pressure;
use super::receive::ReceiveProgress;
use super::status::{PartStatus, Progress, State, Status};
use crate::ship::nats::{ForeignMessages, Published};
use crate::ship::tcp;

type Labels<'a> = [(&'a str, &'a str); 2];

/// Collects one scrape.
pub(super) fn collect(status: &Status) -> MetricSet {
    let mut metrics = MetricSet::new();
    for part in &status.parts {
        let labels = [("part", part.name.as_str()), ("kind", part.kind)];
        add_state(&mut metrics, labels, part);
        match &part.progress {
            Some(Progress::Capture(captured)) => add_capture(&mut metrics, labels, captured),
            Some(Progress::Serve(_, status)) => add_serve(&mut metrics, labels, status),
            Some(Progress::Publish(published)) => add_publish(&mut metrics, labels, published),
            Some(Progress::Receive(received)) => add_receive(&mut metrics, labels, received),
            Some(Progress::Apply(done)) => add_apply(&mut metrics, labels, done),
            None => {}
        }
    }
    metrics
}

fn add_state(metrics: &mut MetricSet, labels: Labels<'_>, part: &PartStatus) {
    let [name, kind] = labels;
    let help = "1 for the state that the part is in, 0 for all others.";
    let family = metrics.gauge("lowroad_replicate_part_state", help);
    for state in State::ALL {
        family.sample(&[name, kind, ("state", state.name())], state == part.state);
    }
    let help = "Times that the part failed.";
    metrics
        .counter("lowroad_replicate_part_failures_total", help)
        .sample(&labels, part.failures);
    for (metric, help, value) in [
        (
            "lowroad_replicate_record",
            "The last record that the part wrote, sent, received or applied.",
            part.number,
        ),
        (
            "lowroad_replicate_epoch",
            "The last epoch that the part wrote, sent, received or applied.",
            part.epoch,
        ),
        (
            "lowroad_replicate_lag_records",
            "Records that the part has not handled yet.",
            part.lag_records,
        ),
        (
            "lowroad_replicate_log_bytes",
            "Size of the log that the part writes.",
            part.log_bytes,
        ),
        (
            "lowroad_replicate_log_first_epoch",
            "The first epoch that the log still has.",
            part.log_first_epoch,
        ),
    ] {
        if let Some(value) = value {
            metrics.gauge(metric, help).sample(&labels, value);
        }
    }
    if let Some(lag) = part.lag_ms {
        let help = "Time that the oldest record has waited for the part.";
        metrics
            .gauge("lowroad_replicate_lag_seconds", help)
            .sample(&labels, seconds(lag));
    }
}

fn add_capture(metrics: &mut MetricSet, labels: Labels<'_>, captured: &CaptureProgress) {
    let progress = &captured.progress;
    for (name, help, count) in [
        (
            "lowroad_replicate_events_total",
            "Events that were captured.",
            progress.events,
        ),
        (
            "lowroad_replicate_dropped_events_total",
            "Events without room in the ring buffer; what they changed is read from the tree.",
            progress.dropped,
        ),
        (
            "lowroad_replicate_read_back_bytes_total",
            "Bytes that were read from the tree, because no event had them.",
            progress.read_back,
        ),
        (
            "lowroad_replicate_dirty_bytes_total",
            "Bytes of the distinct pages of each epoch that had to be read from the tree.",
            progress.dirty,
        ),
    ] {
        metrics.counter(name, help).sample(&labels, count);
    }
    for (name, help, value) in [
        (
            "lowroad_replicate_doubtful_files",
            "Files of which something has to be read from the tree.",
            progress.doubtful as u64,
        ),
        (
            "lowroad_replicate_stale_files",
            "Files that the last epoch has an earlier state of, because they changed all the time.",
            captured.stale.files,
        ),
        (
            "lowroad_replicate_waiting_bytes",
            "Bytes of events that wait in the ring buffer.",
            progress.waiting,
        ),
        (
            "lowroad_replicate_files",
            "Files of all kinds in the log.",
            progress.files,
        ),
    ] {
        metrics.gauge(name, help).sample(&labels, value);
    }
    if let Some(checked) = &captured.checked {
        add_check(metrics, labels, checked);
    }
    if let Some(pressure) = &captured.pressure {
        add_pressure(metrics, labels, pressure);
    }
}

fn add_check(metrics: &mut MetricSet, labels: Labels<'_>, checked: &CheckReport) {
    for (name, help, count) in [
        (
            "lowroad_replicate_check_rounds_total",
            "Comparisons of the whole tree with the log.",
            checked.rounds,
        ),
        (
            "lowroad_replicate_check_names_total",
            "Names that were compared with the log.",
            checked.names,
        ),
        (
            "lowroad_replicate_check_bytes_total",
            "Bytes of the tree that were compared with the log.",
            checked.bytes,
        ),
        (
            "lowroad_replicate_check_differences_total",
            "Names that differed from the log and did not change meanwhile.",
            checked.differences,
        ),
        (
            "lowroad_replicate_check_mended_total",
            "Names that differed and are the same again.",
            checked.mended,
        ),
        (
            "lowroad_replicate_check_undecided_total",
            "Names that changed all the time while they were compared.",
            checked.undecided,
        ),
    ] {
        metrics.counter(name, help).sample(&labels, count);
    }
}

/// Adds the metrics of a bounded capture.
fn add_pressure(metrics: &mut MetricSet, labels: Labels<'_>, pressure: &Pressure) {
    let help = "Bytes of changes that wait to be read or to be confirmed by a replica.";
    metrics
        .gauge("lowroad_replicate_lag_bytes", help)
        .sample(&labels, pressure.lag);
    let help = "1 while the application is frozen because too much waits, 0 otherwise.";
    metrics
        .gauge("lowroad_replicate_frozen", help)
        .sample(&labels, pressure.frozen);
    let help = "Time that the application was frozen.";
    metrics
        .counter("lowroad_replicate_frozen_seconds_total", help)
        .sample(&labels, pressure.time.as_secs_f64());
    for (name, help, count) in [
        (
            "lowroad_replicate_freezes_total",
            "Times that the application was frozen.",
            pressure.freezes,
        ),
        (
            "lowroad_replicate_freezes_expired_total",
            "Times that the application was thawed because it had been frozen for too long.",
            pressure.expired,
        ),
        (
            "lowroad_replicate_cgroup_vanished_total",
            "Times that the cgroup of the application had vanished.",
            pressure.vanished,
        ),
    ] {
        metrics.counter(name, help).sample(&labels, count);
    }
}

fn add_serve(metrics: &mut MetricSet, labels: Labels<'_>, status: &tcp::Status) {
    let [part, _] = labels;
    let help = "Replicas that are connected.";
    metrics
        .gauge("lowroad_replicate_replicas", help)
        .sample(&labels, status.replicas.len());
    // Of connections with the same certificate, the one that is furthest behind counts. A label
    // with the address would create another series after each reconnect.
    let mut lags = BTreeMap::<&str, (u64, u64)>::new();
    for replica in &status.replicas {
        let (records, ms) = lags.entry(&replica.name).or_default();
        *records = replica.lag_records.max(*records);
        *ms = replica.lag_ms.max(*ms);
    }
    for (replica, (records, ms)) in lags {
        let labels = [part, ("replica", replica)];
        let help = "Records that a replica does not have on its disk.";
        metrics
            .gauge("lowroad_replicate_replica_lag_records", help)
            .sample(&labels, records);
        let help =
            "Time since the oldest record was sent that a replica does not have on its disk.";
        metrics
            .gauge("lowroad_replicate_replica_lag_seconds", help)
            .sample(&labels, seconds(ms));
    }
    let counts = &status.counts;
    let help = "Connections, by what became of them.";
    metrics
        .counter("lowroad_replicate_connections_total", help)
        .sample(&[part, ("end", "welcomed")], counts.welcomed)
        .sample(&[part, ("end", "crowded")], counts.crowded)
        .sample(&[part, ("end", "strangers")], counts.strangers)
        .sample(&[part, ("end", "refused")], counts.refused)
        .sample(&[part, ("end", "malformed")], counts.malformed)
        .sample(&[part, ("end", "stalled")], counts.stalled)
        .sample(&[part, ("end", "ended")], counts.ended);
}

fn add_publish(metrics: &mut MetricSet, labels: Labels<'_>, published: &Published) {
    add_messages(metrics, labels, published.messages);
    add_bytes(metrics, labels, published.bytes);
    add_retries(metrics, labels, published.retries);
    let help = "Messages that the stream had lost, and that were published again.";
    metrics
        .counter("lowroad_replicate_repeated_messages_total", help)
        .sample(&labels, published.lost);
    add_foreign(metrics, labels, &published.foreign);
}

fn add_receive(metrics: &mut MetricSet, labels: Labels<'_>, received: &ReceiveProgress) {
    let repeated = match received {
        ReceiveProgress::Tcp(progress, _) => {
            add_bytes(metrics, labels, progress.bytes);
            let help = "Connections that were made to the source.";
            metrics
                .counter("lowroad_replicate_connects_total", help)
                .sample(&labels, progress.connects);
            let help = "Records that were received and written.";
            metrics
                .counter("lowroad_replicate_received_records_total", help)
                .sample(&labels, progress.records);
            progress.repeated
        }
        ReceiveProgress::Nats(progress) => {
            add_messages(metrics, labels, progress.messages);
            add_retries(metrics, labels, progress.retries);
            add_foreign(metrics, labels, &progress.foreign);
            let help = "Messages of the stream that were not received yet.";
            metrics
                .gauge("lowroad_replicate_pending_messages", help)
                .sample(&labels, progress.pending);
            progress.duplicates
        }
    };
    let help = "Records that were received and that the log had already.";
    metrics
        .counter("lowroad_replicate_repeated_records_total", help)
        .sample(&labels, repeated);
}

fn add_apply(metrics: &mut MetricSet, labels: Labels<'_>, done: &Done) {
    let help = "Times that the replica went on to a later epoch.";
    metrics
        .counter("lowroad_replicate_steps_total", help)
        .sample(&labels, done.steps);
    let help = "Names that were made or removed in the replica.";
    metrics
        .counter("lowroad_replicate_names_total", help)
        .sample(&labels, done.names);
    add_bytes(metrics, labels, done.bytes);
    let help = "Names that others had changed in the replica, and that were put right.";
    metrics
        .counter("lowroad_replicate_repaired_names_total", help)
        .sample(&labels, done.repaired);
    if let Some(checked) = &done.checked {
        add_check(metrics, labels, checked);
    }
}

fn add_bytes(metrics: &mut MetricSet, labels: Labels<'_>, count: u64) {
    let help = "Bytes of messages that were published, of files that were received, or written to the replica.";
    metrics
        .counter("lowroad_replicate_bytes_total", help)
        .sample(&labels, count);
}

fn add_messages(metrics: &mut MetricSet, labels: Labels<'_>, count: u64) {
    let help = "Messages that were published to a stream or received from it.";
    metrics
        .counter("lowroad_replicate_messages_total", help)
        .sample(&labels, count);
}

fn add_foreign(metrics: &mut MetricSet, labels: Labels<'_>, foreign: &ForeignMessages) {
    let help = "Messages of a stream that are no part of the log and were skipped.";
    metrics
        .counter("lowroad_replicate_foreign_messages_total", help)
        .sample(&labels, foreign.count);
}

fn add_retries(metrics: &mut MetricSet, labels: Labels<'_>, count: u64) {
    let help = "Times that a stream was asked where to go on after an error.";
    metrics
        .counter("lowroad_replicate_retries_total", help)
        .sample(&labels, count);
}

fn seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use control::metrics::Format;
    use serde_json::Value;
    use test_support::exposition::{Page, Syntax};

    use super::*;
    use crate::ship::nats;

    fn part(name: &str, kind: &'static str, progress: Progress) -> PartStatus {
        PartStatus {
            name: name.to_owned(),
            kind,
            log: "log".to_owned(),
            state: State::Running,
            trouble: None,
            failures: 1,
            number: Some(7),
            epoch: Some(3),
            lag_records: Some(2),
            lag_ms: Some(1500),
            log_bytes: Some(4096),
            log_first_epoch: Some(1),
            counts: Value::Null,
            progress: Some(progress),
        }
    }

    /// Two connections with one certificate, and one with another.
    fn replicas() -> tcp::Status {
        let replica = |name: &str, port: u16, lag_ms| tcp::Replica {
            address: ([192, 0, 2, 1], port).into(),
            name: name.to_owned(),
            number: 7,
            epoch: 3,
            lag_records: lag_ms / 100,
            lag_ms,
        };
        tcp::Status {
            replicas: vec![
                replica("a", 1, 100),
                replica("b", 2, 0),
                replica("a", 3, 2500),
            ],
            ..tcp::Status::default()
        }
    }

    /// A part of each kind, and two captures, with every value that a part can count.
    fn parts() -> Status {
        let captured = || {
            Progress::Capture(CaptureProgress {
                checked: Some(CheckReport::default()),
                pressure: Some(Pressure {
                    time: Duration::from_millis(250),
                    ..Pressure::default()
                }),
                ..CaptureProgress::default()
            })
        };
        let applied = Done {
            checked: Some(CheckReport::default()),
            ..Done::default()
        };
        let from_source = ReceiveProgress::Tcp(tcp::Progress::default(), Duration::ZERO);
        let from_stream = ReceiveProgress::Nats(nats::Received::default());
        Status {
            parts: vec![
                part("app", "capture", captured()),
                part(
                    "serve-1",
                    "serve",
                    Progress::Serve(([127, 0, 0, 1], 1).into(), replicas()),
                ),
                part("capture-2", "capture", captured()),
                part(
                    "publish-1",
                    "publish",
                    Progress::Publish(Published::default()),
                ),
                part("receive-1", "receive", Progress::Receive(from_source)),
                part("receive-2", "receive", Progress::Receive(from_stream)),
                part("apply-1", "apply", Progress::Apply(applied)),
            ],
        }
    }

    fn page() -> Page {
        let page = collect(&parts()).encode(Format::OpenMetrics);
        Page::read(&page, Syntax::OpenMetrics).unwrap_or_else(|error| panic!("{error}\n{page}"))
    }

    #[test]
    fn the_book_lists_the_metrics_there_are() {
        const BOOK: &str = concat!(
            include_str!("../../../../docs/src/metrics.md"),
            include_str!("../../../../docs/src/metrics-replicate.md")
        );
        let page = collect(&parts()).encode(Format::Prometheus);
        let page = Page::read(&page, Syntax::Prometheus).unwrap();
        page.assert_documented(BOOK);
        page.assert_complete(BOOK, "lowroad_replicate_");
    }

    #[test]
    fn parts_of_every_kind_have_their_metrics_on_one_page_in_base_units() {
        let page = page();
        let app = [("part", "app"), ("kind", "capture")];
        assert_eq!(page.value("lowroad_replicate_lag_seconds", &app), 1.5);
        assert_eq!(
            page.value("lowroad_replicate_frozen_seconds_total", &app),
            0.25
        );
        let running = [&app[..], &[("state", "running")]].concat();
        assert_eq!(page.value("lowroad_replicate_part_state", &running), 1.0);
    }

    #[test]
    fn a_replica_that_connects_twice_has_the_lag_of_the_slower_connection() {
        let page = page();
        let lag = |replica| {
            let labels = [("part", "serve-1"), ("replica", replica)];
            page.value("lowroad_replicate_replica_lag_seconds", &labels)
        };
        assert_eq!((lag("a"), lag("b")), (2.5, 0.0));
    }
}
