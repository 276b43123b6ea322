//! Several tests at once, each over a session of its own: streams in both directions, and latency under load.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, ScopedJoinHandle, scope, sleep};
use std::time::Duration;

use super::{Client, Error, Progress, STACK, Session, Target, Watch};
use crate::options::{LoadDirection, LoadStreams};
use crate::outcome::{Load, Outcome, Phase, Transfer};
use crate::spec::{Direction, MAX_DURATION, Spec, micros};

/// The interval of looks whether the streams of a load have begun.
const TICK: Duration = Duration::from_millis(10);
/// Streams that load a path go on for this much longer than the test may take: its flows connect, its answers arrive.
const LOAD_MARGIN: Duration = Duration::from_secs(20);
/// The least of that where the server allows no longer test.
const MIN_LOAD_MARGIN: Duration = Duration::from_secs(5);

/// Measures a stream in each direction at the same time: first that to the server, then that from it.
pub(super) fn both_directions(
    target: &Target,
    spec: &Spec,
    watch: Watch<'_>,
) -> Result<Vec<Outcome>, Error> {
    let of = |direction| Spec {
        direction,
        ..spec.clone()
    };
    let (mut up, down) = (target.open()?, target.open()?);
    let other = Background::new();
    scope(|scope| {
        let running = other.start(scope, down, of(Direction::Down))?;
        let mut both = |progress: &Progress| {
            for there in other.take_reports() {
                watch(&there)?;
            }
            // Both ends of a path carry what passes in either direction.
            let (bytes, messages) = other.passed();
            let progress = Progress {
                bytes: progress.bytes + bytes,
                messages: progress.messages + messages,
                ..progress.clone()
            };
            watch(&progress)
        };
        let here = up.measure(&of(Direction::Up), &mut both);
        if here
            .as_ref()
            .map_or(true, |outcome| outcome.ended_early.is_some())
        {
            other.stop();
        }
        let there = join(running)?;
        // It has reported its last interval since the last look. There is nothing left to stop.
        for last in other.take_reports() {
            let _stop = watch(&last);
        }
        let mut outcomes = vec![here?, there];
        for outcome in &mut outcomes {
            outcome.bidirectional = true;
        }
        Ok(outcomes)
    })
}

/// Measures the idle path first, and then the path under the load of streams.
pub(super) fn under_load(
    client: &mut Client,
    spec: &Spec,
    load: &LoadStreams,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    // Whatever prevents the load is found before anything is measured.
    let mut sessions = Vec::new();
    for direction in load.direction.directions() {
        sessions.push((direction, client.target.open()?));
    }
    let length = load_length(spec, &sessions)?;
    let stream = |direction| Spec {
        duration_us: micros(length),
        direction,
        ..load.stream.clone()
    };
    let idle = client.measure(spec, &mut in_phase(Phase::Idle, watch))?;
    if idle.ended_early.is_some() {
        return Ok(idle);
    }
    for (_, session) in &mut sessions {
        // A server closes a session that was idle for an hour.
        if session.is_gone() {
            *session = client.target.open()?;
        }
    }
    let streams: Vec<_> = sessions.iter().map(|_| Background::new()).collect();
    scope(|scope| {
        let _stop = StopOnDrop(&streams);
        let mut running = Vec::new();
        for (background, (direction, session)) in streams.iter().zip(sessions) {
            let handle = background.start(scope, session, stream(direction))?;
            running.push((direction, handle));
        }
        while !streams.iter().all(Background::has_begun) {
            // One that cannot begin has ended.
            if running.iter().any(|(_, handle)| handle.is_finished()) {
                break;
            }
            if watch(&Progress::default()) == ControlFlow::Break(()) {
                break;
            }
            sleep(TICK);
        }
        let mut outcome = client.measure(spec, &mut in_phase(Phase::Loaded, watch))?;
        let ended: Vec<_> = running.iter().map(|(_, it)| it.is_finished()).collect();
        streams.iter().for_each(Background::stop);
        let mut transfers: [Option<Transfer>; 2] = [None, None];
        for ((direction, handle), ended) in running.into_iter().zip(ended) {
            let background = join(handle)?;
            if outcome.ended_early.is_none() {
                outcome.ended_early = load_fault(&background, ended);
            }
            let at = match direction {
                Direction::Up => &mut transfers[0],
                Direction::Down => &mut transfers[1],
            };
            *at = background.transfer;
        }
        let [up, down] = transfers;
        outcome.load = Some(Load {
            up,
            down,
            flows: load.stream.flows,
            idle: Box::new(idle),
        });
        Ok(outcome)
    })
}

/// How long the streams of a load may last: a search or a count of bytes would end before the test, so they go on until
/// they are stopped.
fn load_length(spec: &Spec, sessions: &[(Direction, Session)]) -> Result<Duration, Error> {
    let test = spec.warmup() + spec.duration();
    let mut length = (test + LOAD_MARGIN).min(MAX_DURATION);
    for (_, session) in sessions {
        length = length.min(session.max_duration);
        if test + MIN_LOAD_MARGIN > length {
            return Err(Error::Declined {
                target: session.target.clone(),
                test: spec.test,
                why: format!(
                    "its load lasts {} s longer, and the server allows no test longer than {} s",
                    MIN_LOAD_MARGIN.as_secs(),
                    length.as_secs()
                ),
                later: false,
            });
        }
    }
    Ok(length)
}

/// Why a test was not measured under its load, if it was not. The load may have ended before the test.
fn load_fault(load: &Outcome, ended: bool) -> Option<String> {
    let direction = match load.spec.direction {
        Direction::Up => "to",
        Direction::Down => "from",
    };
    match (ended || load.transfer.is_none(), load.has_result()) {
        (true, _) => {
            let why = load.ended_early.as_deref().unwrap_or("its time was over");
            Some(format!(
                "the load {direction} the server ended before the test: {why}"
            ))
        }
        (false, false) => Some(format!(
            "the load {direction} the server transferred nothing"
        )),
        (false, true) => None,
    }
}

/// Has the watch see of which half of the test an interval is.
fn in_phase(phase: Phase, watch: Watch<'_>) -> impl FnMut(&Progress) -> ControlFlow<()> {
    move |progress| {
        let mut progress = progress.clone();
        if let Some(interval) = &mut progress.interval {
            interval.phase = Some(phase);
        }
        watch(&progress)
    }
}

impl LoadDirection {
    fn directions(self) -> Vec<Direction> {
        match self {
            Self::Up => vec![Direction::Up],
            Self::Down => vec![Direction::Down],
            Self::Both => vec![Direction::Up, Direction::Down],
        }
    }
}

/// A test that runs in another thread until it ends or is stopped.
#[derive(Debug)]
struct Background {
    stopped: AtomicBool,
    begun: AtomicBool,
    observations: Mutex<Observations>,
}

/// What its watch has seen.
#[derive(Debug, Default)]
struct Observations {
    bytes: u64,
    messages: u64,
    reports: Vec<Progress>,
}

impl Background {
    fn new() -> Self {
        Self {
            stopped: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            observations: Mutex::default(),
        }
    }

    fn start<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        mut session: Session,
        spec: Spec,
    ) -> Result<ScopedJoinHandle<'scope, Result<Outcome, Error>>, Error> {
        let run = move || session.measure(&spec, &mut |progress| self.watch(progress));
        Ok(Builder::new()
            .stack_size(4 * STACK)
            .spawn_scoped(scope, run)?)
    }

    fn watch(&self, progress: &Progress) -> ControlFlow<()> {
        self.begun.fetch_or(progress.measured.is_some(), Relaxed);
        let mut seen = self.observations();
        (seen.bytes, seen.messages) = (progress.bytes, progress.messages);
        if progress.interval.is_some() {
            seen.reports.push(progress.clone());
        }
        match self.stopped.load(Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn has_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Bytes and messages so far.
    fn passed(&self) -> (u64, u64) {
        let seen = self.observations();
        (seen.bytes, seen.messages)
    }

    /// The intervals that have ended since the last call.
    fn take_reports(&self) -> Vec<Progress> {
        std::mem::take(&mut self.observations().reports)
    }

    fn observations(&self) -> std::sync::MutexGuard<'_, Observations> {
        self.observations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the streams of a load, also after an error.
struct StopOnDrop<'a>(&'a [Background]);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Background::stop);
    }
}

fn join(handle: ScopedJoinHandle<'_, Result<Outcome, Error>>) -> Result<Outcome, Error> {
    match handle.join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::test::Test;

    #[test]
    fn load_without_bytes_or_to_the_end_is_a_fault() {
        let spec = Spec::new(Test::TcpStream, Duration::from_secs(1));
        let load = |bits_per_s| Outcome {
            transfer: Some(Transfer {
                bits_per_s,
                offered_bits_per_s: 1.0,
                loss: None,
            }),
            ended_early: Some("stopped".to_owned()),
            ..Outcome::empty(&spec)
        };
        assert_eq!(load_fault(&load(1.0), false), None);
        let why = load_fault(&load(0.0), false).unwrap();
        assert_eq!(why, "the load to the server transferred nothing");
        let without_end = Outcome {
            transfer: None,
            ..load(1.0)
        };
        for why in [
            load_fault(&load(1.0), true),
            load_fault(&without_end, false),
        ] {
            let why = why.unwrap();
            assert!(why.ends_with("before the test: stopped"), "{why}");
        }
    }
}
