//! A test with both ends: warm-up, window, end.

use std::io;
use std::ops::ControlFlow;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::{Error, Progress, Session, Watch};
use crate::flow::{ClientFlow, Clock, Totals, Window};
use crate::outcome::{End, Outcome, Times, Transfer};
use crate::spec::{Direction, Spec};
use crate::test::method::RunClient;

/// The interval of calls to the watch, and of looks for faults.
const TICK: Duration = Duration::from_millis(20);
/// If no datagram arrives for this long, none is on the way.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// The last answers or bytes arrive within this.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// A test in which nothing moves for this long has ended.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures by flows of this kind at the client, and the flows of the spec's test at the server.
pub(crate) fn measure(
    session: &mut Session,
    spec: &Spec,
    client: RunClient,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let (to, cookie) = session.begin(spec)?;
    let totals = Totals::default();
    thread::scope(|scope| {
        let abort = totals.abort_on_drop();
        let mut flows = Vec::new();
        for flow in 0..spec.flows {
            let to = to.get(usize::from(flow)).or_else(|| to.first()).copied();
            let to = to.ok_or_else(|| Error::Io(io::ErrorKind::InvalidData.into()))?;
            let flow = ClientFlow {
                number: flow,
                to,
                cookie,
                spec,
                totals: &totals,
            };
            let run = move || {
                let mut clock = Clock::new(flow.totals);
                flow.totals.run(|| {
                    let ended = client(&flow, &mut clock);
                    clock.end(&ended);
                    ended
                });
                // With the times until its end, even after an error.
                clock
            };
            flows.push(thread::Builder::new().spawn_scoped(scope, run)?);
        }
        let mut outcome = drive(session, spec, &totals, watch)?;
        drop(abort);
        let times = times(flows);
        outcome.unsent = times.unsent;
        outcome.unfinished = times.unfinished;
        outcome.late = times.late;
        outcome.latency = (!spec.test.streams()).then_some(times.latency);
        Ok(outcome)
    })
}

/// The times of all flows.
fn times(flows: Vec<ScopedJoinHandle<'_, Clock<'_>>>) -> Times {
    let mut all = Times::default();
    for flow in flows {
        // A thread that panicked has printed its message.
        if let Ok(clock) = flow.join() {
            all.add(&clock.times());
        }
    }
    all
}

fn drive(
    session: &mut Session,
    spec: &Spec,
    totals: &Totals,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let mut early = wait_for_flows(session, spec, totals, watch);
    if early.is_none() {
        early = wait(session, spec.warmup(), None, totals, watch);
    }
    let window = totals.open_window();
    // After an early end as well, to learn the server's error.
    let marked = session.mark();
    let began = early.is_none();
    if began {
        early = wait(session, spec.duration(), Some(&window), totals, watch);
    }
    let mut near = totals.close_window(&window, spec.flows);
    // The sender stops before the receiver waits for the last bytes.
    if spec.direction == Direction::Up || !spec.test.streams() {
        totals.stop();
        totals.finish(DRAIN_TIMEOUT);
    }
    let far = marked.and_then(|()| session.end(totals.bytes()));
    let (far, fault) = match far {
        Ok((far, fault)) => (Some(far).filter(|_| began), fault),
        Err(lost) => (None, Some(lost.to_string())),
    };
    if fault.is_some() {
        // The server's error explains the stall.
        early = early.filter(|why| *why != stalled());
    }
    if let (Some(far), Direction::Down) = (&far, spec.direction) {
        // A connection loses nothing: missing bytes are late.
        let quiet = match spec.test.datagrams() {
            true => QUIET_TIME,
            false => DRAIN_TIMEOUT,
        };
        totals.drain(far.all_bytes, quiet, DRAIN_TIMEOUT);
    }
    totals.stop();
    near.all_messages = totals.messages();
    near.all_bytes = totals.bytes();
    Ok(Outcome {
        spec: spec.clone(),
        transfer: far.as_ref().and_then(|far| transfer(spec, &near, far)),
        near,
        far,
        latency: None,
        lost: totals.lost(),
        unsent: 0,
        unfinished: 0,
        late: None,
        ended_early: early.or(fault),
    })
}

fn transfer(spec: &Spec, near: &End, far: &End) -> Option<Transfer> {
    let (sent, received) = match spec.direction {
        Direction::Up => (near, far),
        Direction::Down => (far, near),
    };
    let streams = spec.test.streams();
    streams.then(|| Transfer::of(sent, received, spec.test.datagrams()))
}

/// Waits until each flow has reached its other end.
fn wait_for_flows(
    session: &Session,
    spec: &Spec,
    totals: &Totals,
    watch: Watch<'_>,
) -> Option<String> {
    let begun = Instant::now();
    while totals.connected() < usize::from(spec.flows) {
        let early = wait(session, Duration::ZERO, None, totals, watch);
        if early.is_some() {
            return early;
        }
        if begun.elapsed() > STALL_TIMEOUT {
            return Some(format!(
                "the flows have not begun after {} s",
                STALL_TIMEOUT.as_secs()
            ));
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Waits for this long while the test runs. Returns why it ended early, if it did.
fn wait(
    session: &Session,
    length: Duration,
    window: Option<&Window>,
    totals: &Totals,
    watch: Watch<'_>,
) -> Option<String> {
    let begun = Instant::now();
    let mut moved = (totals.activity(), begun);
    loop {
        let left = length.saturating_sub(begun.elapsed());
        let progress = Progress {
            measured: window.map(|_| begun.elapsed().min(length)),
            bytes: totals.bytes(),
            messages: totals.messages(),
            step: None,
        };
        // If the server is gone, the flows fail too, with errors that explain less.
        let fault = totals.fault();
        if session.is_gone() {
            return Some(format!("{} is gone", session.target));
        }
        if let Some(fault) = fault {
            return Some(fault);
        }
        if watch(&progress) == ControlFlow::Break(()) {
            return Some("stopped".to_owned());
        }
        if left.is_zero() {
            return None;
        }
        // Pieces count, because a large message over a slow path may take longer than the timeout.
        let activity = totals.activity();
        if activity != moved.0 {
            moved = (activity, Instant::now());
        } else if moved.1.elapsed() > STALL_TIMEOUT {
            return Some(stalled());
        }
        thread::sleep(left.min(TICK));
    }
}

fn stalled() -> String {
    format!("nothing for {} s", STALL_TIMEOUT.as_secs())
}
