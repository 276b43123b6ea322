//! The state of a test that its flows share: counts of each, the window, and the signal to stop.

use std::io;
use std::net::Shutdown;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::{SockRef, Socket};

use super::sequence::{Arrivals, SequenceTracker};
use crate::outcome::{End, Latency, TcpStatistics};
use crate::socket;
use crate::socket_options::tcp_statistics;
use crate::spec::Spec;

/// The interval at which [`Totals::drain`] checks for arrivals.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Counts of all flows, and their signals to begin and to stop.
#[derive(Debug)]
pub(crate) struct Totals {
    flows: Box<[FlowTotals]>,
    /// The bytes that senders may still send, in a test of a given number of bytes.
    budget: Option<AtomicU64>,
    window_open: AtomicBool,
    opened: OnceLock<Instant>,
    closed: OnceLock<Instant>,
    stopped: AtomicBool,
    aborted: AtomicBool,
    connected: AtomicUsize,
    running: AtomicUsize,
    shared: Mutex<Shared>,
    /// Notified when a flow has ended, and when the window opens.
    changed: Condvar,
}

/// The counts of one flow. Flows do not share cache lines, or they would slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct FlowTotals {
    bytes: AtomicU64,
    messages: AtomicU64,
    pieces: AtomicU64,
    lost: AtomicU64,
    send_errors: AtomicU64,
    /// The times of transactions since the last [`Totals::take_latency`].
    latency: LatencySums,
    sequence: Mutex<SequenceTracker>,
}

#[derive(Debug, Default)]
struct LatencySums {
    count: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// The times of the transactions of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencySummary {
    pub count: u64,
    /// In nanoseconds.
    pub mean_ns: f64,
    pub max_ns: u64,
}

/// Counts what one flow does, and reads the signals of its test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter<'a> {
    totals: &'a Totals,
    flow: &'a FlowTotals,
}

#[derive(Debug, Default)]
struct Shared {
    /// Shut down to end reads and writes; asked for their buffer sizes.
    sockets: Vec<Socket>,
    listeners: Vec<Socket>,
    buffers: End,
    fault: Option<String>,
    /// How late this end began its messages in the window.
    late: Option<Latency>,
    /// The number of flows that have sent or received their last message, and when the last of them did.
    finished: u16,
    finished_at: Option<Instant>,
}

/// Aborts the flows when it is dropped. The scope of their threads waits for them, also after a panic, and must not wait
/// for ever.
#[derive(Debug)]
pub(crate) struct AbortGuard<'a>(&'a Totals);

impl Drop for AbortGuard<'_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The counts at the beginning of the window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    at: Instant,
    /// Bytes and messages of each flow.
    flows: Vec<(u64, u64)>,
    retransmits: u64,
    cpu_ns: u64,
}

impl Window {
    pub(crate) fn bytes(&self) -> u64 {
        self.flows.iter().map(|(bytes, _)| bytes).sum()
    }

    pub(crate) fn messages(&self) -> u64 {
        self.flows.iter().map(|(_, messages)| messages).sum()
    }

    pub(crate) fn retransmits(&self) -> u64 {
        self.retransmits
    }
}

impl Deref for Counter<'_> {
    type Target = Totals;

    fn deref(&self) -> &Totals {
        self.totals
    }
}

impl Counter<'_> {
    pub(crate) fn count(&self, bytes: usize) {
        self.flow.bytes.fetch_add(bytes as u64, Relaxed);
        self.flow.messages.fetch_add(1, Relaxed);
    }

    /// Counts a datagram with a sequence number. A copy of one that has arrived counts as a duplicate only.
    pub(crate) fn count_datagram(&self, datagram: &[u8]) -> (u64, bool) {
        let (number, unique) = self.record_datagram(datagram);
        if unique {
            self.count(datagram.len());
        }
        (number, unique)
    }

    /// Records the sequence number of a datagram that is counted elsewhere. Returns the number, and false if it has
    /// arrived before.
    pub(crate) fn record_datagram(&self, datagram: &[u8]) -> (u64, bool) {
        let sequence = self.flow.sequence.lock();
        sequence
            .unwrap_or_else(PoisonError::into_inner)
            .record(datagram)
    }

    /// Counts a piece of a message; the message counts once it is complete.
    pub(crate) fn count_piece(&self) {
        self.flow.pieces.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_lost(&self) {
        self.flow.lost.fetch_add(1, Relaxed);
    }

    /// Counts a datagram that this machine refused to send.
    pub(crate) fn count_send_error(&self) {
        self.flow.send_errors.fetch_add(1, Relaxed);
    }

    /// Adds the time of a transaction to the interval's.
    pub(crate) fn add_latency(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let sums = &self.flow.latency;
        sums.count.fetch_add(1, Relaxed);
        sums.sum_ns.fetch_add(ns, Relaxed);
        sums.max_ns.fetch_max(ns, Relaxed);
    }
}

impl Totals {
    pub(crate) fn new(spec: &Spec) -> Self {
        let flows = (0..spec.flows.max(1)).map(|_| FlowTotals::default());
        Self {
            flows: flows.collect(),
            budget: spec.bytes.map(AtomicU64::new),
            window_open: AtomicBool::default(),
            opened: OnceLock::new(),
            closed: OnceLock::new(),
            stopped: AtomicBool::default(),
            aborted: AtomicBool::default(),
            connected: AtomicUsize::default(),
            running: AtomicUsize::default(),
            shared: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The counter of one flow. A flow beyond those of the test shares the last one's.
    pub(crate) fn counter(&self, flow: u16) -> Counter<'_> {
        let last = self.flows.len() - 1;
        Counter {
            totals: self,
            flow: &self.flows[usize::from(flow).min(last)],
        }
    }

    /// The flows of the test.
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    fn sum(&self, of: impl Fn(&FlowTotals) -> &AtomicU64) -> u64 {
        self.flows.iter().map(|flow| of(flow).load(Relaxed)).sum()
    }

    /// The number of messages and pieces: while it changes, the test makes progress.
    pub(crate) fn activity(&self) -> u64 {
        self.messages() + self.sum(|flow| &flow.pieces)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sum(|flow| &flow.bytes)
    }

    pub(crate) fn messages(&self) -> u64 {
        self.sum(|flow| &flow.messages)
    }

    pub(crate) fn send_errors(&self) -> u64 {
        self.sum(|flow| &flow.send_errors)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.sum(|flow| &flow.lost)
    }

    /// What has arrived by sequence numbers, in all flows.
    pub(crate) fn arrivals(&self) -> Arrivals {
        let mut all = Arrivals::default();
        for flow in &self.flows {
            let sequence = flow.sequence.lock();
            all.add(&sequence.unwrap_or_else(PoisonError::into_inner).arrivals());
        }
        all
    }

    /// The times of the transactions since the last call.
    pub(crate) fn take_latency(&self) -> LatencySummary {
        let (mut count, mut sum, mut max) = (0, 0, 0);
        for FlowTotals { latency, .. } in &self.flows {
            count += latency.count.swap(0, Relaxed);
            sum += latency.sum_ns.swap(0, Relaxed);
            max = latency.max_ns.swap(0, Relaxed).max(max);
        }
        LatencySummary {
            count,
            mean_ns: sum as f64 / count.max(1) as f64,
            max_ns: max,
        }
    }

    /// What TCP knows of all connections; none without connections.
    pub(crate) fn tcp_statistics(&self) -> Option<TcpStatistics> {
        let shared = self.shared();
        let each = shared.sockets.iter();
        let each = each.filter_map(|socket| tcp_statistics(&SockRef::from(socket)));
        each.reduce(|all, one| all.merge(&one))
    }

    /// The bytes that a sender may send of a message of this size; 0 once the test has sent all of its bytes.
    pub(crate) fn take_budget(&self, bytes: usize) -> usize {
        let Some(budget) = &self.budget else {
            return bytes;
        };
        let take = |left: u64| Some(left.saturating_sub(bytes as u64));
        let left = budget.fetch_update(Relaxed, Relaxed, take).unwrap_or(0);
        bytes.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Returns bytes of the budget that were not sent.
    pub(crate) fn return_budget(&self, bytes: usize) {
        if let Some(budget) = &self.budget {
            budget.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Whether the test ends after a number of bytes, and its flows have ended.
    pub(crate) fn is_complete(&self) -> bool {
        self.budget.is_some() && !self.is_running()
    }

    pub(crate) fn is_window_open(&self) -> bool {
        self.window_open.load(Relaxed)
    }

    /// When the window opened and closed, once it is closed.
    pub(crate) fn window(&self) -> Option<(Instant, Instant)> {
        self.opened.get().copied().zip(self.closed.get().copied())
    }

    /// Whether the window was open at some time since `begin`.
    pub(crate) fn window_was_open_since(&self, begin: Instant) -> bool {
        let ended = self.closed.get().is_some_and(|closed| *closed <= begin);
        self.opened.get().is_some() && !ended
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Whether the flows give up what is under way.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    /// Opens the window.
    pub(crate) fn open_window(&self) -> Window {
        let retransmits = self.tcp_statistics().map_or(0, |tcp| tcp.retransmits);
        let cpu_ns = socket::cpu_ns();
        let count = |flow: &FlowTotals| (flow.bytes.load(Relaxed), flow.messages.load(Relaxed));
        let flows = self.flows.iter().map(count).collect();
        // Flows that have waited for the window begin now.
        let at = *self.opened.get_or_init(Instant::now);
        self.window_open.store(true, Relaxed);
        drop(self.shared());
        self.changed.notify_all();
        Window {
            at,
            flows,
            retransmits,
            cpu_ns,
        }
    }

    /// Waits until the window opens, in a test of a given number of bytes: all of them count.
    pub(crate) fn await_window(&self) {
        let mut shared = self.shared();
        while self.budget.is_some() && self.opened.get().is_none() && !self.is_stopped() {
            shared = self.wait(shared, POLL_INTERVAL);
        }
    }

    /// Closes the window. Later arrivals count in [`Self::messages`] and [`Self::bytes`] only.
    ///
    /// If each of the flows has had its last message, the window ended then: nothing was sent since, and a longer
    /// window would give too low a rate.
    pub(crate) fn close_window(&self, since: &Window, flows: u16) -> End {
        let now = *self.closed.get_or_init(Instant::now);
        self.window_open.store(false, Relaxed);
        // TCP forgets nothing before its socket is closed.
        let tcp = self.tcp_statistics().map(|tcp| TcpStatistics {
            retransmits: tcp.retransmits.saturating_sub(since.retransmits),
            ..tcp
        });
        let mut shared = self.shared();
        let end = shared.finished_at.filter(|_| shared.finished == flows);
        let window = end.unwrap_or(now).saturating_duration_since(since.at);
        // TCP's buffers grow while they are used.
        let Shared {
            sockets, buffers, ..
        } = &mut *shared;
        for socket in sockets {
            socket::record_buffers(&SockRef::from(&*socket), buffers);
        }
        let pairs = self.flows.iter().zip(&since.flows);
        let of_flows: Vec<(u64, u64)> = pairs
            .map(|(flow, (bytes, messages))| {
                let bytes = flow.bytes.load(Relaxed) - bytes;
                (bytes, flow.messages.load(Relaxed) - messages)
            })
            .collect();
        End {
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            bytes: of_flows.iter().map(|(bytes, _)| bytes).sum(),
            messages: of_flows.iter().map(|(_, messages)| messages).sum(),
            flow_bytes: of_flows.iter().map(|(bytes, _)| *bytes).collect(),
            cpu_ns: socket::cpu_ns().saturating_sub(since.cpu_ns),
            tcp,
            ..buffers.clone()
        }
    }

    /// Adds to an end what has passed by now, when nothing is on the way any more.
    pub(crate) fn complete_end(&self, end: End) -> End {
        let late = self.shared().late.as_ref().map(|late| late.quantile(0.99));
        End {
            late_p99_ns: late,
            all_messages: self.messages(),
            all_bytes: self.bytes(),
            send_errors: self.send_errors(),
            arrivals: self.arrivals(),
            ..end
        }
    }

    /// Has each flow end after what it is doing.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Has each flow end now, also one that waits for the other end.
    pub(crate) fn abort(&self) {
        self.stop();
        self.aborted.store(true, Relaxed);
        let mut shared = self.shared();
        let Shared {
            sockets, listeners, ..
        } = &mut *shared;
        for socket in sockets.drain(..).chain(listeners.drain(..)) {
            // It may be closed already. A read of an unconnected socket ends, too.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Aborts the flows when the guard is dropped.
    pub(crate) fn abort_on_drop(&self) -> AbortGuard<'_> {
        AbortGuard(self)
    }

    /// Runs a flow. An error before the test stopped is its fault.
    pub(crate) fn run(&self, flow: impl FnOnce() -> io::Result<()>) {
        self.running.fetch_add(1, Relaxed);
        let ended = flow();
        let mut shared = self.shared();
        if let Err(error) = ended
            && !self.is_stopped()
        {
            shared.fault.get_or_insert_with(|| error.to_string());
        }
        self.running.fetch_sub(1, Relaxed);
        self.changed.notify_all();
    }

    /// Counts a flow that has reached its other end.
    pub(crate) fn count_connected(&self) {
        self.connected.fetch_add(1, Relaxed);
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }

    /// Adds messages that a flow of this end began this late.
    pub(crate) fn add_lateness(&self, by: Duration, count: u64) {
        let mut shared = self.shared();
        shared.late.get_or_insert_default().record_many(by, count);
    }

    /// Counts a flow that has sent or received its last message.
    pub(crate) fn count_finished(&self) {
        let mut shared = self.shared();
        shared.finished += 1;
        shared.finished_at = Some(Instant::now());
    }

    fn is_running(&self) -> bool {
        self.running.load(Relaxed) > 0
    }

    /// Waits until the flows have ended, and has them give up what takes longer than the timeout.
    pub(crate) fn finish(&self, timeout: Duration) {
        let begun = Instant::now();
        let mut shared = self.shared();
        while self.is_running() {
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                self.aborted.store(true, Relaxed);
                break;
            }
            shared = self.wait(shared, left);
        }
    }

    /// Waits for what is on the way: until `due` bytes have arrived, or nothing has for the time `quiet`, or the flows
    /// have ended.
    pub(crate) fn drain(&self, due: u64, quiet: Duration, timeout: Duration) {
        let begun = Instant::now();
        let (mut seen, mut since) = (self.messages(), begun);
        let arrived = || !self.is_running() || self.bytes() >= due;
        let mut shared = self.shared();
        while !arrived() && since.elapsed() < quiet && begun.elapsed() < timeout {
            shared = self.wait(shared, POLL_INTERVAL);
            let now = self.messages();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    /// Waits until a flow has ended or the window opens, or for this time.
    fn wait<'a>(&self, shared: MutexGuard<'a, Shared>, long: Duration) -> MutexGuard<'a, Shared> {
        let waited = self.changed.wait_timeout(shared, long);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.shared().fault.clone()
    }

    /// Registers a socket: [`Self::abort`] shuts it down, and [`Self::close_window`] reads its buffer sizes.
    ///
    /// # Errors
    /// If its descriptor cannot be duplicated.
    pub(crate) fn register(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let clone = socket.try_clone()?;
        self.record_buffers(socket);
        self.shared().sockets.push(clone);
        self.abort_if_stopped();
        Ok(())
    }

    /// Registers a listener: [`Self::abort`] wakes the threads that wait for its connections.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub(crate) fn register_listener(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let clone = socket.try_clone()?;
        self.shared().listeners.push(clone);
        self.abort_if_stopped();
        Ok(())
    }

    fn abort_if_stopped(&self) {
        if self.is_stopped() {
            self.abort();
        }
    }

    /// Records the sizes of a socket's buffers, if they are the largest.
    pub(crate) fn record_buffers(&self, socket: &SockRef<'_>) {
        socket::record_buffers(socket, &mut self.shared().buffers);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Consistent between any two statements.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::thread;

    use super::*;
    use crate::test::Test;

    fn totals() -> Totals {
        Totals::new(&Spec::new(Test::TcpRr, Duration::from_secs(1)))
    }

    #[test]
    fn budget_is_exact_among_flows() {
        let spec = Spec {
            flows: 2,
            bytes: Some(1000),
            ..Spec::new(Test::TcpStream, Duration::from_secs(1))
        };
        let totals = Totals::new(&spec);
        assert_eq!(
            [totals.take_budget(600), totals.take_budget(600)],
            [600, 400]
        );
        assert_eq!(totals.take_budget(1), 0);
        assert_eq!(self::totals().take_budget(77), 77);
        totals.counter(0).count(600);
        totals.counter(1).count(300);
        // A flow that the test does not have shares a counter.
        totals.counter(9).count(100);
        assert_eq!((totals.bytes(), totals.messages()), (1000, 3));
        let end = totals.close_window(
            &Window {
                at: Instant::now(),
                flows: vec![(0, 0), (100, 1)],
                retransmits: 0,
                cpu_ns: 0,
            },
            2,
        );
        assert_eq!(
            (end.flow_bytes, end.bytes, end.messages),
            (vec![600, 300], 900, 2)
        );
    }

    #[test]
    fn senders_of_a_number_of_bytes_wait_for_window() {
        let spec = Spec {
            bytes: Some(1000),
            ..Spec::new(Test::TcpStream, Duration::from_secs(1))
        };
        let totals = Totals::new(&spec);
        let window = thread::scope(|scope| {
            scope.spawn(|| {
                totals.await_window();
                totals.counter(0).count(totals.take_budget(2000));
                totals.count_finished();
            });
            totals.open_window()
        });
        let end = totals.close_window(&window, 1);
        assert!(end.bytes == 1000 && end.window_ns > 0, "{end:?}");
        // A test that ends before its window has no such wait, and neither has one of a given duration.
        let never = Totals::new(&spec);
        never.stop();
        never.await_window();
        self::totals().await_window();
    }

    #[test]
    fn abort_wakes_waiting_flows() {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let met = UdpSocket::bind("127.0.0.1:0").unwrap();
        met.connect(peer.local_addr().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let totals = totals();
        totals.register(&(&datagrams).into()).unwrap();
        totals.register(&(&met).into()).unwrap();
        totals.register_listener(&(&listener).into()).unwrap();
        // None of these has a time-out: without the abort the test never ends.
        thread::scope(|scope| {
            scope.spawn(|| datagrams.recv(&mut [0; 9]));
            scope.spawn(|| assert_eq!(met.recv(&mut [0; 9]).unwrap(), 0));
            scope.spawn(|| listener.accept().unwrap_err());
            totals.abort();
        });
        // A socket that is registered later is shut down at once.
        let late = UdpSocket::bind("127.0.0.1:0").unwrap();
        totals.register(&(&late).into()).unwrap();
        let _ended = late.recv(&mut [0; 9]);
    }

    #[test]
    fn window_ends_with_last_datagram() {
        let totals = totals();
        let window = totals.open_window();
        totals.counter(0).count(100);
        totals.count_finished();
        thread::sleep(Duration::from_millis(1));
        totals.count_finished();
        let finished = totals.shared().finished_at.unwrap() - window.at;
        thread::sleep(Duration::from_millis(1));
        let ns = u64::try_from(finished.as_nanos()).unwrap();
        assert_eq!(totals.close_window(&window, 2).window_ns, ns);
        // One of three has not had it: what it may still send counts.
        assert!(totals.close_window(&window, 3).window_ns > ns);
    }

    #[test]
    fn largest_buffer_sizes_are_recorded() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let totals = totals();
        let kept = SockRef::from(&socket);
        let was = |end: &End| (end.send_buffer, end.receive_buffer);
        kept.set_recv_buffer_size(20_000).unwrap();
        kept.set_send_buffer_size(30_000).unwrap();
        totals.register(&kept).unwrap();
        let window = totals.open_window();
        kept.set_recv_buffer_size(25_000).unwrap();
        kept.set_send_buffer_size(10_000).unwrap();
        let end = totals.close_window(&window, 1);
        assert_eq!(was(&end), (60_000, 50_000));
    }

    #[test]
    fn finish_and_drain_wake_when_flows_end() {
        let totals = totals();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            let totals = &totals;
            scope.spawn(move || {
                totals.run(|| {
                    may_go.recv().unwrap();
                    Ok(())
                });
            });
            while !totals.is_running() {
                thread::yield_now();
            }
            let before = totals.is_aborted();
            totals.finish(Duration::from_millis(1));
            let after = totals.is_aborted();
            scope.spawn(move || {
                // For longer than any test lasts.
                totals.finish(Duration::from_hours(1));
                totals.drain(u64::MAX, Duration::from_hours(1), Duration::from_hours(1));
            });
            go.send(()).unwrap();
            assert_eq!((before, after), (false, true));
        });
        assert_eq!(totals.fault(), None);
        totals.run(|| Err(io::ErrorKind::BrokenPipe.into()));
        assert!(totals.fault().is_some());
    }
}
