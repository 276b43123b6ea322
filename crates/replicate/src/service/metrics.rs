//! What the parts count, in the Prometheus text format.

use control::metrics::Text;

use super::apply::Done;
use super::capture::Captured;
use super::check::Checked;
use super::freezer::Pressure;
use super::receive::Received;
use super::status::{PartStatus, Progress, State, Status};
use crate::ship::nats::Published;
use crate::ship::tcp;

type Labels<'a> = [(&'a str, &'a str); 2];

/// One scrape.
pub(super) fn render(status: &Status) -> String {
    let mut text = Text::new();
    for part in &status.parts {
        let labels = [("part", part.name.as_str()), ("kind", part.kind)];
        state(&mut text, labels, part);
        match &part.progress {
            Some(Progress::Capture(captured)) => capture(&mut text, labels, captured),
            Some(Progress::Serve(_, status)) => serve(&mut text, labels, status),
            Some(Progress::Publish(published)) => publish(&mut text, labels, published),
            Some(Progress::Receive(received)) => receive(&mut text, labels, received),
            Some(Progress::Apply(done)) => apply(&mut text, labels, done),
            None => {}
        }
    }
    text.to_string()
}

fn state(text: &mut Text, labels: Labels<'_>, part: &PartStatus) {
    let [name, kind] = labels;
    for state in State::ALL {
        text.gauge("lowroad_replicate_part_state", "1 for the state it is in.")
            .sample(
                &[name, kind, ("state", state.name())],
                u8::from(state == part.state),
            );
    }
    text.counter(
        "lowroad_replicate_part_failures_total",
        "Times that a part could not go on.",
    )
    .sample(&labels, part.failures);
    let values = [
        (
            "lowroad_replicate_record",
            "The last record that it has said, shipped, received or applied.",
            part.number,
        ),
        (
            "lowroad_replicate_epoch",
            "The last epoch of it.",
            part.epoch,
        ),
        (
            "lowroad_replicate_lag_records",
            "Records that it has not done yet.",
            part.lag_records,
        ),
        (
            "lowroad_replicate_lag_ms",
            "For how long the oldest of them has waited, in milliseconds.",
            part.lag_ms,
        ),
        (
            "lowroad_replicate_log_bytes",
            "How large the log is that it writes.",
            part.log_bytes,
        ),
        (
            "lowroad_replicate_log_first_epoch",
            "The first epoch that this log still has.",
            part.log_first_epoch,
        ),
    ];
    for (metric, help, value) in values {
        if let Some(value) = value {
            text.gauge(metric, help).sample(&labels, value);
        }
    }
}

fn capture(text: &mut Text, labels: Labels<'_>, captured: &Captured) {
    let progress = &captured.progress;
    text.counter("lowroad_replicate_events_total", "Events that were seen.")
        .sample(&labels, progress.events);
    text.counter(
        "lowroad_replicate_dropped_events_total",
        "Events that found no room; what they said is read instead.",
    )
    .sample(&labels, progress.dropped);
    text.counter(
        "lowroad_replicate_read_back_bytes_total",
        "Bytes that were read from the tree instead of seen.",
    )
    .sample(&labels, progress.read_back);
    text.gauge(
        "lowroad_replicate_doubtful_files",
        "Files of which something is in doubt.",
    )
    .sample(&labels, progress.doubtful);
    text.gauge(
        "lowroad_replicate_waiting_bytes",
        "Bytes of events that wait to be read.",
    )
    .sample(&labels, progress.waiting);
    text.gauge(
        "lowroad_replicate_files",
        "Files of all kinds that the log has.",
    )
    .sample(&labels, progress.files);
    if let Some(checked) = &captured.checked {
        check(text, labels, checked);
    }
    if let Some(bounded) = &captured.pressure {
        pressure(text, labels, bounded);
    }
}

fn check(text: &mut Text, labels: Labels<'_>, checked: &Checked) {
    for (name, help, count) in [
        (
            "lowroad_replicate_check_rounds_total",
            "Times that all of the tree was compared with the log.",
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
            "Names that were not as the log said, and had rested.",
            checked.differences,
        ),
        (
            "lowroad_replicate_check_mended_total",
            "Those of them that are again as the log says.",
            checked.mended,
        ),
        (
            "lowroad_replicate_check_undecided_total",
            "Names that did not rest while they were compared.",
            checked.undecided,
        ),
    ] {
        text.counter(name, help).sample(&labels, count);
    }
}

fn pressure(text: &mut Text, labels: Labels<'_>, pressure: &Pressure) {
    text.gauge(
        "lowroad_replicate_lag_bytes",
        "Bytes that have happened, and that wait to be read or confirmed by a replica.",
    )
    .sample(&labels, pressure.lag);
    text.gauge(
        "lowroad_replicate_frozen",
        "1 while the application is frozen because too much waits.",
    )
    .sample(&labels, u8::from(pressure.frozen));
    text.counter(
        "lowroad_replicate_freezes_total",
        "Times that it was frozen.",
    )
    .sample(&labels, pressure.freezes);
    text.counter(
        "lowroad_replicate_frozen_seconds_total",
        "For how long altogether.",
    )
    .sample(&labels, pressure.time.as_secs_f64());
    text.counter(
        "lowroad_replicate_freezes_expired_total",
        "Times that it was thawed because it had been frozen for too long.",
    )
    .sample(&labels, pressure.expired);
    text.counter(
        "lowroad_replicate_cgroup_vanished_total",
        "Times that the application's cgroup was gone.",
    )
    .sample(&labels, pressure.vanished);
}

fn serve(text: &mut Text, labels: Labels<'_>, status: &tcp::Status) {
    let [name, _] = labels;
    text.gauge("lowroad_replicate_replicas", "Replicas that are connected.")
        .sample(&labels, status.replicas.len());
    for replica in &status.replicas {
        let address = replica.address.to_string();
        let labels = [name, ("replica", &replica.name), ("address", &address)];
        text.gauge(
            "lowroad_replicate_replica_lag_records",
            "Records that a replica does not have on its disk.",
        )
        .sample(&labels, replica.lag_records);
        text.gauge(
            "lowroad_replicate_replica_lag_ms",
            "For how long the oldest of those sent has waited, in milliseconds.",
        )
        .sample(&labels, replica.lag_ms);
    }
    let counts = &status.counts;
    let ends = [
        ("welcomed", counts.welcomed),
        ("crowded", counts.crowded),
        ("strangers", counts.strangers),
        ("refused", counts.refused),
        ("malformed", counts.malformed),
        ("stalled", counts.stalled),
        ("ended", counts.ended),
    ];
    for (end, count) in ends {
        text.counter(
            "lowroad_replicate_connections_total",
            "Connections, by what became of them.",
        )
        .sample(&[name, ("end", end)], count);
    }
}

fn publish(text: &mut Text, labels: Labels<'_>, published: &Published) {
    messages(text, labels, published.messages);
    bytes(text, labels, published.bytes);
    retries(text, labels, published.retries);
    text.counter(
        "lowroad_replicate_repeated_messages_total",
        "Messages that the stream had lost, and that were published again.",
    )
    .sample(&labels, published.lost);
}

fn receive(text: &mut Text, labels: Labels<'_>, received: &Received) {
    let repeated = match received {
        Received::Tcp(progress, _) => {
            bytes(text, labels, progress.bytes);
            text.counter(
                "lowroad_replicate_connects_total",
                "Connections that were made.",
            )
            .sample(&labels, progress.connects);
            text.counter(
                "lowroad_replicate_received_records_total",
                "Records that were received and written.",
            )
            .sample(&labels, progress.records);
            progress.repeated
        }
        Received::Nats(progress) => {
            messages(text, labels, progress.messages);
            retries(text, labels, progress.retries);
            text.gauge(
                "lowroad_replicate_pending_messages",
                "Messages that the stream has and that were not received yet.",
            )
            .sample(&labels, progress.pending);
            progress.duplicates
        }
    };
    text.counter(
        "lowroad_replicate_repeated_records_total",
        "Records that were there already.",
    )
    .sample(&labels, repeated);
}

fn apply(text: &mut Text, labels: Labels<'_>, done: &Done) {
    text.counter(
        "lowroad_replicate_steps_total",
        "Times that the tree went on to a later epoch.",
    )
    .sample(&labels, done.steps);
    text.counter(
        "lowroad_replicate_names_total",
        "Names given and taken away in the tree.",
    )
    .sample(&labels, done.names);
    bytes(text, labels, done.bytes);
    text.counter(
        "lowroad_replicate_repaired_names_total",
        "Names that somebody else had changed, and that were put right.",
    )
    .sample(&labels, done.repaired);
    if let Some(checked) = &done.checked {
        check(text, labels, checked);
    }
}

fn bytes(text: &mut Text, labels: Labels<'_>, count: u64) {
    text.counter(
        "lowroad_replicate_bytes_total",
        "Bytes: of messages that were published, of files in what was received, written to the tree.",
    )
    .sample(&labels, count);
}

fn messages(text: &mut Text, labels: Labels<'_>, count: u64) {
    text.counter(
        "lowroad_replicate_messages_total",
        "Messages to or from a stream.",
    )
    .sample(&labels, count);
}

fn retries(text: &mut Text, labels: Labels<'_>, count: u64) {
    text.counter(
        "lowroad_replicate_retries_total",
        "Times that a stream was asked where to go on.",
    )
    .sample(&labels, count);
}
