//! A test with both ends: warm-up, window, end.

use std::io;
use std::ops::ControlFlow;
use std::thread::{Builder, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use super::{Error, Progress, Session, Watch};
use crate::flow::{ClientFlow, Clock, Counter, Totals, Window};
use crate::outcome::{End, Interval, Outcome, TcpStatistics, Times, Transfer};
use crate::socket::path_mtu_to;
use crate::spec::{Direction, Spec};
use crate::test::method::RunClient;

/// The interval of calls to the watch, and of looks for faults.
const TICK: Duration = Duration::from_millis(20);
/// If no datagram arrives for this long, none is on the way.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// The last answers or bytes arrive within this.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// A test in which nothing moves for this long, and for two intervals of its messages, has ended.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The stack of a flow's thread, in bytes. Flows hold their buffers on the heap.
pub(crate) const STACK: usize = 256 << 10;
/// The largest packet that every IPv6 path carries, in bytes (RFC 8200, section 5).
const MIN_PATH_MTU: u32 = 1280;
/// The MTU of a path of which nothing is known, in bytes.
const ETHERNET_MTU: u32 = 1500;
/// Why a test ends before its window: its datagrams are too long for the path.
const SIZE_FAULT: &str = "this machine refuses to send datagrams of this size";

/// Runs one flow until the test stops. The clock times its transactions.
type RunFlow<'a> = &'a (dyn Fn(u16, &mut Clock<'_>, Counter<'_>) -> io::Result<()> + Sync);

/// Measures by flows of this kind at the client, and the flows of the spec's test at the server.
pub(crate) fn measure(
    session: &mut Session,
    spec: &Spec,
    client: RunClient,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    loop {
        let mtu = session.path_mtu;
        let mut outcome = measure_once(session, spec, client, watch)?;
        let there = outcome.far.as_ref().and_then(|far| far.path_mtu);
        let here = path_mtu_to(session.peer, &session.source).ok();
        session.path_mtu = [mtu, here, there].into_iter().flatten().min();
        // A router has said meanwhile that datagrams of this size do not fit. Each round has a smaller MTU.
        let refused =
            outcome.near.send_errors + outcome.far.as_ref().map_or(0, |far| far.send_errors);
        if spec.fit_message && refused > 0 && session.path_mtu < mtu {
            continue;
        }
        outcome.path_mtu = session.path_mtu;
        outcome.packet_bytes = outcome.spec.largest_packet(session.peer.is_ipv6());
        return Ok(outcome);
    }
}

fn measure_once(
    session: &mut Session,
    spec: &Spec,
    client: RunClient,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let v6 = session.peer.is_ipv6();
    let mtu = session.path_mtu;
    let spec = &spec.fit(mtu.unwrap_or(ETHERNET_MTU), v6);
    let (to, cookie) = session.begin(spec)?;
    let (source, round_trip) = (session.source.clone(), session.round_trip());
    let run = |number: u16, clock: &mut Clock<'_>, counter: Counter<'_>| {
        let to = to.get(usize::from(number)).or_else(|| to.first());
        let to = *to.ok_or(io::ErrorKind::InvalidData)?;
        let flow = ClientFlow::new(number, to, &cookie, spec, &source, counter)
            .with_round_trip(round_trip);
        client(&flow, clock)
    };
    conduct(Some(session), spec, &run, watch)
}

/// Measures by one flow at this end, without a server.
pub(crate) fn measure_alone(
    spec: &Spec,
    run: RunFlow<'_>,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    conduct(None, spec, run, watch)
}

fn conduct(
    session: Option<&mut Session>,
    spec: &Spec,
    run: RunFlow<'_>,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let totals = &Totals::new(spec);
    scope(|scope| {
        let abort = totals.abort_on_drop();
        let mut flows = Vec::new();
        for number in 0..spec.flows {
            let run = move || {
                let counter = totals.counter(number);
                let mut clock = Clock::new(counter);
                totals.run(|| {
                    let ended = run(number, &mut clock, counter);
                    clock.end(&ended);
                    ended
                });
                // With the times until its end, even after an error.
                clock
            };
            flows.push(Builder::new().stack_size(STACK).spawn_scoped(scope, run)?);
        }
        let mut outcome = drive(session, spec, totals, watch)?;
        drop(abort);
        add_times(flows, &mut outcome);
        Ok(outcome)
    })
}

/// Adds the times of all flows to the outcome.
fn add_times(flows: Vec<ScopedJoinHandle<'_, Clock<'_>>>, outcome: &mut Outcome) {
    let several = flows.len() > 1 && !outcome.spec.test.streams();
    let mut all = Times::default();
    for flow in flows {
        // A thread that panicked has printed its message.
        if let Ok(clock) = flow.join() {
            let times = clock.times();
            all.add(&times);
            if several {
                outcome.flow_latencies.push(times.latency);
            }
        }
    }
    outcome.sent = all.sent;
    outcome.unsent = all.unsent;
    outcome.unfinished = all.unfinished;
    outcome.late = all.late;
    outcome.bounds = all.bounds;
    outcome.latency = (!outcome.spec.test.streams()).then_some(all.latency);
}

/// Has a test in which nothing happened fail: it says why it has no result.
pub(crate) fn explain(mut outcome: Outcome) -> Outcome {
    if outcome.ended_early.is_none() && !outcome.has_result() {
        outcome.ended_early = Some(nothing(&outcome));
    }
    outcome
}

/// Why a test that came to its end has no result.
fn nothing(outcome: &Outcome) -> String {
    let spec = &outcome.spec;
    if spec.test.streams() {
        let sent = outcome.sender().map_or(0, |sender| sender.all_messages);
        let arrived = outcome.receiver().map_or(0, |end| end.all_messages);
        if arrived > 0 {
            return format!(
                "nothing arrived in the window, and {arrived} messages before or after it: the path has stopped, or is slower than the test is long"
            );
        }
        let refused = outcome.sender().map_or(0, |sender| sender.send_errors);
        if sent > 0 && refused >= sent {
            return format!(
                "the sender's own kernel refused all {sent} datagrams of {} bytes: its firewall, queue or path MTU",
                spec.message
            );
        }
        let mut why = match sent {
            0 => "nothing was sent".to_owned(),
            _ => format!(
                "nothing arrived of {sent} messages of {} bytes",
                spec.message
            ),
        };
        let packet = outcome.packet_bytes.filter(|_| sent > 0);
        if packet.is_some_and(|packet| packet > MIN_PATH_MTU) {
            why += ", though shorter ones did; the path may drop what is longer than its MTU: try --message 1200B";
        }
        return why;
    }
    match outcome.lost + outcome.unfinished {
        0 => "no transaction began and ended within the window: try a longer --duration".to_owned(),
        unanswered => format!("none of {unanswered} requests was answered"),
    }
}

fn drive(
    mut session: Option<&mut Session>,
    spec: &Spec,
    totals: &Totals,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let mut early = wait_for_flows(session.as_deref(), spec, totals, watch);
    if early.is_none() {
        let length = spec.warmup();
        early = wait(session.as_deref(), spec, length, None, totals, watch);
    }
    if early.is_none() && spec.fit_message && totals.send_errors() > 0 {
        early = Some(SIZE_FAULT.to_owned());
    }
    // After an early end as well, to learn the server's error.
    let (window, marked) = open_windows(session.as_deref_mut(), spec, totals);
    // Only what the window's own transactions take belongs to its first interval.
    totals.take_latency();
    let began = early.is_none();
    if began {
        let reports = Reports::new(spec, totals, &window);
        early = wait(
            session.as_deref(),
            spec,
            spec.duration(),
            Some(reports),
            totals,
            watch,
        );
    }
    if early.is_none() && spec.bytes.is_some() && !totals.is_complete() {
        let seconds = spec.duration().as_secs_f64();
        early = Some(format!(
            "not all bytes were sent within {seconds} s: give a longer --duration"
        ));
    }
    let near = totals.close_window(&window, spec.flows);
    // The sender stops before the receiver waits for the last bytes.
    if spec.direction == Direction::Up || !spec.test.streams() {
        totals.stop();
        totals.finish(DRAIN_TIMEOUT);
    }
    let mut far = None;
    if let Some(session) = session {
        let fault = match marked.and_then(|()| session.end(totals.bytes())) {
            Ok((end, fault)) => {
                far = Some(end).filter(|_| began);
                fault
            }
            Err(lost) => Some(lost.to_string()),
        };
        if fault.is_some() {
            // The server's error explains the stall.
            early = early.filter(|why| *why != stalled(spec));
        }
        early = early.or(fault);
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
    let near = totals.complete_end(near);
    if let Some(far) = &far {
        early = early.or_else(|| missing_bytes(spec, &near, far));
    }
    Ok(Outcome {
        transfer: far.as_ref().and_then(|far| transfer(spec, &near, far)),
        near,
        far,
        lost: totals.lost(),
        ended_early: early,
        ..Outcome::empty(spec)
    })
}

/// Opens the windows of both ends. Flows that wait for theirs send nothing before the receiver's is open.
fn open_windows(
    session: Option<&mut Session>,
    spec: &Spec,
    totals: &Totals,
) -> (Window, Result<(), Error>) {
    let mark = || session.map_or(Ok(()), |session| session.mark(spec));
    match spec.confirms_window() {
        true => {
            let marked = mark();
            (totals.open_window(), marked)
        }
        false => (totals.open_window(), mark()),
    }
}

/// Why a stream of a given number of bytes over connections has not passed all of them, if it has not.
fn missing_bytes(spec: &Spec, near: &End, far: &End) -> Option<String> {
    let (sent, received) = sender_and_receiver(spec, near, far);
    let (sent, received) = (sent.all_bytes, received.all_bytes);
    let missing = spec.bytes.is_some() && !spec.test.datagrams() && received < sent;
    missing.then(|| format!("only {received} of {sent} bytes have arrived"))
}

fn sender_and_receiver<'a>(spec: &Spec, near: &'a End, far: &'a End) -> (&'a End, &'a End) {
    match spec.direction {
        Direction::Up => (near, far),
        Direction::Down => (far, near),
    }
}

fn transfer(spec: &Spec, near: &End, far: &End) -> Option<Transfer> {
    let (sent, received) = sender_and_receiver(spec, near, far);
    let streams = spec.test.streams();
    streams.then(|| Transfer::of(sent, received, spec.test.datagrams()))
}

/// Waits until each flow has reached its other end.
fn wait_for_flows(
    session: Option<&Session>,
    spec: &Spec,
    totals: &Totals,
    watch: Watch<'_>,
) -> Option<String> {
    let begun = Instant::now();
    while totals.connected() < usize::from(spec.flows) {
        let early = wait(session, spec, Duration::ZERO, None, totals, watch);
        if early.is_some() {
            return early;
        }
        // Flows connect and exchange cookies: two round trips.
        let timeout = STALL_TIMEOUT + session.map_or(Duration::ZERO, Session::round_trip) * 3;
        if begun.elapsed() > timeout {
            return Some(format!(
                "the flows have not begun after {} s; a firewall may drop them: serve with --data-ports and open those",
                timeout.as_secs()
            ));
        }
        sleep(Duration::from_millis(1));
    }
    None
}

/// Cuts a window into intervals.
struct Reports<'a> {
    totals: &'a Totals,
    /// None: there are no intervals, only a window.
    interval: Option<Duration>,
    direction: Direction,
    length: Duration,
    /// When the last interval ended, and when the present one is to.
    begin: Duration,
    due: Duration,
    bytes: u64,
    messages: u64,
    retransmits: u64,
}

impl<'a> Reports<'a> {
    fn new(spec: &Spec, totals: &'a Totals, window: &Window) -> Self {
        let interval = spec.interval_us.map(Duration::from_micros);
        Self {
            totals,
            interval,
            direction: spec.direction,
            length: spec.duration(),
            begin: Duration::ZERO,
            due: interval.unwrap_or(Duration::MAX),
            bytes: window.bytes(),
            messages: window.messages(),
            retransmits: window.retransmits(),
        }
    }

    /// The time until the present interval ends; none if there are no intervals.
    fn remaining(&self, elapsed: Duration) -> Option<Duration> {
        self.interval.map(|_| self.due.saturating_sub(elapsed))
    }

    /// The interval that has ended by now, if any. If the window is `over`, the last one has.
    fn take(&mut self, elapsed: Duration, over: bool) -> Option<Interval> {
        let elapsed = elapsed.min(self.length);
        let interval = self.interval?;
        // The last one may be shorter, by the rest of the window.
        let due = elapsed >= self.due || elapsed == self.length || over;
        if !due || elapsed == self.begin {
            return None;
        }
        let (bytes, messages) = (self.totals.bytes(), self.totals.messages());
        let tcp = self.totals.tcp_statistics();
        let retransmits = tcp
            .as_ref()
            .map_or(0, |tcp: &TcpStatistics| tcp.retransmits);
        let ended = Interval {
            direction: self.direction,
            phase: None,
            begin: self.begin,
            end: elapsed,
            bytes: bytes - self.bytes,
            messages: messages - self.messages,
            latency: self.totals.take_latency(),
            retransmits: retransmits.saturating_sub(self.retransmits),
            tcp,
        };
        // A late look does not shift those that follow.
        while self.due <= elapsed {
            self.due += interval;
        }
        self.begin = elapsed;
        (self.bytes, self.messages, self.retransmits) = (bytes, messages, retransmits);
        Some(ended)
    }
}

/// Waits for this long while the test runs. Returns why it ended early, if it did.
fn wait(
    session: Option<&Session>,
    spec: &Spec,
    length: Duration,
    mut reports: Option<Reports<'_>>,
    totals: &Totals,
    watch: Watch<'_>,
) -> Option<String> {
    let begun = Instant::now();
    let mut moved = (totals.activity(), begun);
    let patience = stall_timeout(spec);
    loop {
        let complete = totals.is_complete();
        let elapsed = begun.elapsed();
        let left = length.saturating_sub(elapsed);
        let progress = Progress {
            measured: reports.as_ref().map(|_| elapsed.min(length)),
            bytes: totals.bytes(),
            messages: totals.messages(),
            step: None,
            interval: reports
                .as_mut()
                .and_then(|reports| reports.take(elapsed, complete)),
        };
        // If the server is gone, the flows fail too, with errors that explain less.
        let fault = totals.fault();
        if let Some(session) = session.filter(|session| session.is_gone()) {
            return Some(format!("{} is gone", session.target));
        }
        if let Some(fault) = fault {
            return Some(fault);
        }
        if watch(&progress) == ControlFlow::Break(()) {
            return Some("stopped".to_owned());
        }
        if left.is_zero() || complete {
            return None;
        }
        // Pieces count, because a large message over a slow path may take longer than the timeout.
        let activity = totals.activity();
        if activity != moved.0 {
            moved = (activity, Instant::now());
        } else if moved.1.elapsed() > patience {
            return Some(stalled(spec));
        }
        let report = reports
            .as_ref()
            .and_then(|reports| reports.remaining(elapsed));
        sleep(left.min(TICK).min(report.unwrap_or(TICK)));
    }
}

/// How long a test may stand still.
fn stall_timeout(spec: &Spec) -> Duration {
    let two = spec.rate.map_or(0.0, |rate| 2.0 / rate);
    let two = Duration::try_from_secs_f64(two).unwrap_or(Duration::MAX);
    STALL_TIMEOUT.saturating_add(two)
}

fn stalled(spec: &Spec) -> String {
    let seconds = stall_timeout(spec).as_secs();
    format!(
        "the test has transferred nothing for {seconds} s: look for a host or a firewall on the path that drops its packets"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::outcome::Latency;
    use crate::test::Test;

    #[test]
    fn intervals_cover_window() {
        let spec = Spec {
            interval_us: Some(300_000),
            ..Spec::new(Test::TcpStream, Duration::from_secs(1))
        };
        let totals = Totals::new(&spec);
        let window = totals.open_window();
        let mut reports = Reports::new(&spec, &totals, &window);
        let counter = totals.counter(0);
        let ms = Duration::from_millis;
        let mut ended = Vec::new();
        for at in [0, 100, 290, 310, 320, 950, 1000, 1020] {
            counter.count(10);
            ended.extend(reports.take(ms(at), false));
        }
        let spans: Vec<_> = ended.iter().map(|it| (it.begin, it.end)).collect();
        // The look at 950 ms is late, and ends the two intervals that have passed as one.
        let expected = [(0, 310), (310, 950), (950, 1000)];
        assert_eq!(spans, expected.map(|(begin, end)| (ms(begin), ms(end))));
        assert_eq!(
            ended.iter().map(|it| it.bytes).collect::<Vec<_>>(),
            [40, 20, 10]
        );
        assert!(
            ended
                .iter()
                .all(|it| it.tcp.is_none() && it.retransmits == 0)
        );
    }

    #[test]
    fn last_interval_ends_with_bytes() {
        let spec = Spec {
            interval_us: Some(300_000),
            bytes: Some(20),
            ..Spec::new(Test::TcpStream, Duration::from_secs(1))
        };
        let totals = Totals::new(&spec);
        let mut reports = Reports::new(&spec, &totals, &totals.open_window());
        totals.counter(0).count(20);
        let ms = Duration::from_millis;
        assert_eq!(reports.take(ms(40), false), None);
        let last = reports.take(ms(50), true).unwrap();
        assert_eq!((last.end, last.bytes), (ms(50), 20));
        assert_eq!(reports.take(ms(50), true), None);
    }

    #[test]
    fn slow_rate_may_stand_still_for_two_intervals() {
        let mut spec = Spec::new(Test::UdpRr, Duration::from_secs(60));
        assert_eq!(stall_timeout(&spec), STALL_TIMEOUT);
        spec.rate = Some(0.05);
        assert_eq!(stall_timeout(&spec), Duration::from_secs(50));
        spec.rate = Some(1e-30);
        assert_eq!(stall_timeout(&spec), Duration::MAX);
    }

    #[test]
    fn missing_bytes_of_connections_are_an_error() {
        let spec = Spec {
            bytes: Some(100),
            direction: Direction::Down,
            ..Spec::new(Test::TcpStream, Duration::from_secs(1))
        };
        let end = |all_bytes| End {
            all_bytes,
            ..End::default()
        };
        let why = missing_bytes(&spec, &end(90), &end(100)).unwrap();
        assert_eq!(why, "only 90 of 100 bytes have arrived");
        assert_eq!(missing_bytes(&spec, &end(100), &end(100)), None);
        let datagrams = Spec {
            test: Test::UdpStream,
            ..spec
        };
        assert_eq!(missing_bytes(&datagrams, &end(90), &end(100)), None);
    }

    #[test]
    fn test_without_result_has_a_reason() {
        let second = Duration::from_secs(1);
        let mut outcome = Outcome::empty(&Spec::new(Test::UdpRr, second));
        outcome.latency = Some(Latency::new());
        assert!(nothing(&outcome).contains("no transaction"));
        outcome.lost = 7;
        assert_eq!(nothing(&outcome), "none of 7 requests was answered");
        let mut stream = Outcome::empty(&Spec::new(Test::UdpStream, second));
        assert_eq!(nothing(&stream), "nothing was sent");
        stream.near.all_messages = 9;
        stream.packet_bytes = stream.spec.largest_packet(false);
        assert!(nothing(&stream).contains("--message 1200B"));
        stream.far = Some(End {
            all_messages: 4,
            ..End::default()
        });
        assert!(nothing(&stream).contains("in the window, and 4 messages before"));
        stream.far = None;
        stream.near.send_errors = 9;
        assert!(nothing(&stream).contains("refused all 9 datagrams"));
        stream.near.send_errors = 1;
        stream.spec.message = 100;
        stream.packet_bytes = stream.spec.largest_packet(false);
        assert_eq!(
            nothing(&stream),
            "nothing arrived of 9 messages of 100 bytes"
        );
    }
}
