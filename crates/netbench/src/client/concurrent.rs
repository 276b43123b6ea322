//! Several tests at once, each over a session of its own: streams in both directions, and latency under load.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, ScopedJoinHandle, scope, sleep};
use std::time::Duration;

use super::{Client, Error, Progress, STACK, Session, Target, Watch};
use crate::options::{LoadDirection, LoadPlan};
use crate::outcome::{Load, Outcome, Transfer};
use crate::spec::{Direction, Spec};
use crate::test::Test;

/// The interval of looks whether the streams of a load have begun.
const TICK: Duration = Duration::from_millis(10);
/// Streams that load a path go on for this much longer than the test may take: its flows connect, its answers arrive.
const LOAD_MARGIN: Duration = Duration::from_secs(20);

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
    load: LoadPlan,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let idle = client.measure(spec, watch)?;
    if idle.ended_early.is_some() {
        return Ok(idle);
    }
    // A search or a count of bytes would end before the test: streams go on until they are stopped.
    let length = spec.warmup() + spec.duration() + LOAD_MARGIN;
    let stream = |direction| Spec {
        flows: load.flows,
        warmup_us: 0,
        direction,
        dscp: spec.dscp,
        // Of a test without connections it is none.
        congestion: spec.congestion.clone(),
        ..Spec::new(Test::TcpStream, length)
    };
    let mut sessions = Vec::new();
    for direction in load.direction.directions() {
        sessions.push((direction, client.target.open()?));
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
        let mut outcome = client.measure(spec, watch)?;
        streams.iter().for_each(Background::stop);
        let mut transfers: [Option<Transfer>; 2] = [None, None];
        for (direction, handle) in running {
            let background = join(handle)?;
            if outcome.ended_early.is_none() && background.transfer.is_none() {
                let why = background.ended_early.unwrap_or_default();
                outcome.ended_early = Some(format!("the load has ended: {why}"));
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
            flows: load.flows,
            idle: Box::new(idle),
        });
        Ok(outcome)
    })
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
