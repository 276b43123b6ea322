//! The status of the parts, as `status` and the `--json` of each command report it.

use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::Kind;
use super::apply::Done;
use super::capture::{CaptureProgress, Open, now_ns};
use super::check::CheckReport;
use super::freezer::Pressure;
use super::receive::{self, ReceiveProgress};
use super::tip::Tips;
use crate::log::DiskUsage;
use crate::record::Part;
use crate::ship::nats::Published;
use crate::ship::tcp;

#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub parts: Vec<PartStatus>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PartStatus {
    pub name: String,
    pub kind: &'static str,
    pub log: String,
    pub state: State,
    /// The reason for waiting or retrying, or the error that ended the part.
    pub trouble: Option<String>,
    /// How many times the part could not continue.
    pub failures: u64,
    /// The last record and epoch that the part has recorded, shipped, received or applied.
    pub number: Option<u64>,
    pub epoch: Option<u64>,
    /// The records that the part has not handled yet, and for how long the oldest of them has
    /// waited. `None` if unknown, because the part does not report it, is not running or is not
    /// connected.
    pub lag_records: Option<u64>,
    pub lag_ms: Option<u64>,
    /// For a part that writes a log, its size in bytes, and its first epoch if that is known.
    pub log_bytes: Option<u64>,
    pub log_first_epoch: Option<u64>,
    /// The counters since the part last started.
    pub counts: Value,
    #[serde(skip)]
    pub(super) progress: Option<Progress>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It has not started yet.
    #[default]
    Starting,
    Running,
    /// The other end is missing or accepts nothing. The part continues by itself.
    Waiting,
    /// A replica's next step would remove most of its files. It continues when that is allowed, or
    /// when a later epoch has the files again.
    Halted,
    /// It could not continue, and will be restarted soon.
    Retrying,
    /// It could not continue, and needs intervention.
    Failed,
    /// It ended as requested.
    Ended,
}

impl State {
    pub const ALL: [Self; 7] = [
        Self::Starting,
        Self::Running,
        Self::Waiting,
        Self::Halted,
        Self::Retrying,
        Self::Failed,
        Self::Ended,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Halted => "halted",
            Self::Retrying => "retrying",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }
}

/// The report of a part's thread.
#[derive(Clone, Debug, Default)]
pub(super) struct PartReport {
    pub(super) state: State,
    pub(super) trouble: Option<String>,
    pub(super) failures: u64,
    pub(super) progress: Option<Progress>,
}

/// The progress of a part.
#[derive(Clone, Debug)]
pub enum Progress {
    Capture(CaptureProgress),
    /// Also the address that it listens on.
    Serve(SocketAddr, tcp::Status),
    Publish(Published),
    Receive(ReceiveProgress),
    Apply(Done),
}

impl Progress {
    /// Whether it is ready: a log has its tree.
    pub(super) fn ready(&self) -> bool {
        match self {
            Self::Capture(captured) => captured.ready,
            _ => true,
        }
    }

    /// Removes the values that only a running part has.
    pub(super) fn stopped(&mut self) {
        match self {
            Self::Capture(captured) => {
                if let Some(pressure) = &mut captured.pressure {
                    pressure.frozen = false;
                }
            }
            Self::Serve(_, status) => status.replicas.clear(),
            Self::Publish(published) => published.server = None,
            Self::Receive(ReceiveProgress::Tcp(progress, _)) => progress.connected = false,
            Self::Receive(ReceiveProgress::Nats(progress)) => progress.server = None,
            Self::Apply(_) => {}
        }
    }

    /// Whether what it writes has a tree that others can use.
    pub(super) fn has_tree(&self) -> bool {
        match self {
            Self::Capture(captured) => captured.ready,
            Self::Receive(received) => received.reached().1 > 0,
            Self::Apply(done) => done.last.epoch > 0,
            Self::Serve(..) | Self::Publish(_) => true,
        }
    }

    /// Whether it knows its lag. Parts that read a log do as long as that log is written.
    fn knows_lag(&self, state: State) -> bool {
        match self {
            Self::Publish(_) | Self::Apply(_) => true,
            Self::Capture(_) | Self::Serve(..) | Self::Receive(_) => match state {
                State::Starting | State::Running | State::Ended => !self.waits(),
                State::Waiting | State::Halted | State::Retrying | State::Failed => false,
            },
        }
    }

    pub(super) fn waits(&self) -> bool {
        match self {
            Self::Capture(_) | Self::Serve(..) => false,
            Self::Apply(done) => done.hold.is_some(),
            Self::Publish(published) => published.waiting.is_some() || published.server.is_none(),
            Self::Receive(received) => !received.connected(),
        }
    }

    /// Whether a person has to allow the next step.
    pub(super) fn halted(&self) -> bool {
        match self {
            Self::Apply(done) => done.hold.as_ref().is_some_and(|hold| hold.deletes),
            Self::Capture(_) | Self::Serve(..) | Self::Publish(_) | Self::Receive(_) => false,
        }
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        match self {
            Self::Capture(_) | Self::Serve(..) => None,
            Self::Apply(done) => done.hold.as_ref().map(|hold| hold.why.as_str()),
            Self::Publish(published) => published.waiting.as_deref(),
            Self::Receive(received) => received.trouble(),
        }
    }

    /// Returns the status as JSON.
    pub fn object(&self) -> Value {
        match self {
            Self::Capture(captured) => capture(captured),
            Self::Serve(address, status) => serve(*address, status),
            Self::Publish(published) => publish(published),
            Self::Receive(received) => receive(received),
            Self::Apply(done) => apply(done),
        }
    }

    fn reached(&self) -> (Option<u64>, Option<u64>) {
        let (number, epoch) = match self {
            Self::Capture(captured) => (captured.number, captured.progress.epoch),
            Self::Serve(_, status) => (status.tip.number, status.tip.epoch),
            Self::Publish(published) => return (Some(published.number), None),
            Self::Receive(received) => received.reached(),
            Self::Apply(done) => (done.last.record, done.last.epoch),
        };
        (Some(number), Some(epoch))
    }

    /// The lag in records and milliseconds.
    fn lag(&self, log: &Path, tips: &mut Tips) -> (Option<u64>, Option<u64>) {
        match self {
            Self::Capture(captured) => {
                let ms = u64::try_from(captured.lag.as_millis()).unwrap_or(u64::MAX);
                (Some(captured.lag_records), Some(ms))
            }
            Self::Serve(_, status) => {
                let replicas = status.replicas.iter();
                let records = replicas.clone().map(|replica| replica.lag_records).max();
                (records, replicas.map(|replica| replica.lag_ms).max())
            }
            Self::Publish(published) => {
                let Some(tip) = tips.of(log) else {
                    return (None, None);
                };
                let behind = tip.number.saturating_sub(published.number);
                (Some(behind), Some(tip.lag_ms(published.number, now_ns())))
            }
            Self::Receive(received) => received.lag(),
            Self::Apply(done) => {
                let Some(tip) = tips.of(log) else {
                    return (None, None);
                };
                // A tree is always at an epoch.
                let behind = tip.epoch_record.saturating_sub(done.last.record);
                (Some(behind), Some(tip.lag_ms(done.last.record, now_ns())))
            }
        }
    }
}

impl PartStatus {
    pub(super) fn new(
        name: &str,
        kind: Kind,
        log: &Path,
        known: &PartReport,
        tips: &mut Tips,
    ) -> Self {
        let progress = known.progress.as_ref();
        let (number, epoch) = progress.map_or((None, None), Progress::reached);
        let lag = progress.filter(|now| now.knows_lag(known.state));
        let (lag_records, lag_ms) = lag.map_or((None, None), |now| now.lag(log, tips));
        let stored = kind.writes_log().then(|| DiskUsage::of(log).ok()).flatten();
        let first_epoch = stored.and_then(|stored| stored.first_epoch);
        Self {
            name: name.to_owned(),
            kind: kind.name(),
            log: log.display().to_string(),
            state: known.state,
            trouble: known.trouble.clone(),
            failures: known.failures,
            number,
            epoch,
            lag_records,
            lag_ms,
            log_bytes: stored.map(|stored| stored.bytes),
            log_first_epoch: first_epoch.filter(|first| Some(*first) <= epoch),
            counts: progress.map_or(Value::Null, Progress::object),
            progress: known.progress.clone(),
        }
    }
}

fn capture(captured: &CaptureProgress) -> Value {
    let progress = &captured.progress;
    let rescan = progress.rescan.map(|rescan| {
        json!({
            "files": rescan.files,
            "new": rescan.new,
            "gone": rescan.gone,
            "read_bytes": rescan.bytes,
            "differed_bytes": rescan.differed,
            "by_journal": rescan.journal,
        })
    });
    json!({
        "rescan": rescan,
        "epoch": progress.epoch,
        "events": progress.events,
        "waiting_bytes": progress.waiting,
        "dropped": progress.dropped,
        "doubtful_files": progress.doubtful,
        "stale_files": captured.stale.files,
        "stale": captured.stale.display_paths(),
        "open": open(&captured.open),
        "read_back_bytes": progress.read_back,
        "dirty_bytes": progress.dirty,
        "files": progress.files,
        "ready": captured.ready,
        "check": captured.checked.as_ref().map(check),
        "bounded": captured.pressure.as_ref().map(pressure),
    })
}

fn open(open: &Open) -> Value {
    let listed = open.listed.iter().map(|open| {
        let path = open.path.as_ref();
        let path = path.map(|path| path.escape_ascii().to_string());
        match open.part {
            Part::Range { offset, length } => {
                let bytes = Some(length).filter(|length| *length != u64::MAX);
                json!({ "path": path, "part": "bytes", "offset": offset, "bytes": bytes })
            }
            Part::Attributes => json!({ "path": path, "part": "attributes" }),
            Part::Names => json!({ "path": path, "part": "names" }),
        }
    });
    json!({ "parts": open.parts, "listed": listed.collect::<Vec<_>>() })
}

fn check(checked: &CheckReport) -> Value {
    json!({
        "rounds": checked.rounds,
        "names": checked.names,
        "bytes": checked.bytes,
        "differences": checked.differences,
        "mended": checked.mended,
        "undecided": checked.undecided,
    })
}

fn pressure(pressure: &Pressure) -> Value {
    json!({
        "frozen": pressure.frozen,
        "freezes": pressure.freezes,
        "frozen_ms": u64::try_from(pressure.time.as_millis()).unwrap_or(u64::MAX),
        "expired": pressure.expired,
        "vanished": pressure.vanished,
        "lag_bytes": pressure.lag,
    })
}

fn serve(address: SocketAddr, status: &tcp::Status) -> Value {
    let counts = &status.counts;
    json!({
        "listen": address.to_string(),
        "number": status.tip.number,
        "epoch": status.tip.epoch,
        "replicas": status.replicas.iter().map(replica).collect::<Vec<_>>(),
        "connections": {
            "welcomed": counts.welcomed,
            "crowded": counts.crowded,
            "strangers": counts.strangers,
            "refused": counts.refused,
            "malformed": counts.malformed,
            "stalled": counts.stalled,
            "ended": counts.ended,
        },
    })
}

fn replica(replica: &tcp::Replica) -> Value {
    json!({
        "address": replica.address.to_string(),
        "name": replica.name,
        "number": replica.number,
        "epoch": replica.epoch,
        "lag_records": replica.lag_records,
        "lag_ms": replica.lag_ms,
    })
}

fn publish(published: &Published) -> Value {
    json!({
        "record": published.number,
        "messages": published.messages,
        "bytes": published.bytes,
        "in_flight": published.in_flight,
        "retries": published.retries,
        "published_again": published.lost,
        "foreign": published.foreign.count,
        "last_foreign": published.foreign.last,
        "server": published.server,
    })
}

fn receive(received: &ReceiveProgress) -> Value {
    match received {
        ReceiveProgress::Tcp(progress, _) => json!({
            "connected": progress.connected,
            "number": progress.number,
            "epoch": progress.epoch,
            "source_number": progress.tip.number,
            "source_epoch": progress.tip.epoch,
            "lag_records": receive::behind(progress),
            "connects": progress.connects,
            "records": progress.records,
            "repeated": progress.repeated,
            "bytes": progress.bytes,
            "replaced": progress.replaced,
            "trouble": progress.trouble,
        }),
        ReceiveProgress::Nats(progress) => json!({
            "number": progress.number,
            "epoch": progress.epoch,
            "messages": progress.messages,
            "repeated": progress.duplicates,
            "pending_messages": progress.pending,
            "retries": progress.retries,
            "foreign": progress.foreign.count,
            "last_foreign": progress.foreign.last,
            "server": progress.server,
        }),
    }
}

fn apply(done: &Done) -> Value {
    let left = done.left;
    json!({
        "epoch": done.last.epoch,
        "record": done.last.record,
        "steps": done.steps,
        "names": done.names,
        "bytes": done.bytes,
        "repaired": done.repaired,
        "lag_ms": done.lag.as_secs_f64() * 1e3,
        "left": {
            "owners": left.owners,
            "devices": left.devices,
            "set_id": left.set_id,
            "extended_attributes": left.extended,
            "names": left.names,
            "times": left.times,
        },
        "check": done.checked.as_ref().map(check),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reported lag in this state.
    fn lag(state: State, progress: Progress) -> (Option<u64>, Option<u64>) {
        let known = PartReport {
            state,
            progress: Some(progress),
            ..PartReport::default()
        };
        let log = Path::new("/nowhere");
        let status = PartStatus::new("it", Kind::Capture, log, &known, &mut Tips::default());
        (status.lag_records, status.lag_ms)
    }

    #[test]
    fn who_does_not_work_says_nothing_of_a_lag() {
        let capture = || Progress::Capture(CaptureProgress::default());
        let tcp = |connected| {
            let progress = tcp::Progress {
                connected,
                ..tcp::Progress::default()
            };
            Progress::Receive(ReceiveProgress::Tcp(progress, std::time::Duration::ZERO))
        };
        for (state, works) in [
            (State::Starting, true),
            (State::Running, true),
            (State::Ended, true),
            (State::Waiting, false),
            (State::Halted, false),
            (State::Retrying, false),
            (State::Failed, false),
        ] {
            let said = works.then_some(0);
            assert_eq!(lag(state, capture()), (said, said), "{state:?}");
            assert_eq!(lag(state, tcp(true)), (said, said), "{state:?}");
            assert_eq!(lag(state, tcp(false)), (None, None), "{state:?}");
        }
    }

    #[test]
    fn who_does_not_work_has_nobody_connected() {
        let address = "127.0.0.1:1".parse().unwrap();
        let status = tcp::Status {
            replicas: vec![tcp::Replica {
                address,
                name: "edge".to_owned(),
                number: 1,
                epoch: 1,
                lag_records: 0,
                lag_ms: 0,
            }],
            ..tcp::Status::default()
        };
        let mut progress = Progress::Serve(address, status);
        progress.stopped();
        assert_eq!(progress.object()["replicas"], json!([]));
    }
}
