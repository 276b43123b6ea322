//! The state that the flows of a test share: counts, the window, and the signal to stop.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::{SockRef, Socket};

use crate::outcome::End;
use crate::socket;

/// The interval at which [`Totals::drain`] checks for arrivals.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Counts of all flows, and their signals to begin and to stop.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    bytes: AtomicU64,
    messages: AtomicU64,
    pieces: AtomicU64,
    lost: AtomicU64,
    window_open: AtomicBool,
    opened: OnceLock<Instant>,
    closed: OnceLock<Instant>,
    stopped: AtomicBool,
    aborted: AtomicBool,
    connected: AtomicUsize,
    running: AtomicUsize,
    shared: Mutex<Shared>,
    /// Notified when a flow has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    /// Shut down to end reads and writes; asked for their buffer sizes.
    sockets: Vec<Socket>,
    listeners: Vec<Socket>,
    buffers: End,
    fault: Option<String>,
    /// The number of flows that have received their last datagram, and when the last of them did.
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    at: Instant,
    bytes: u64,
    messages: u64,
    cpu_ns: u64,
}

impl Totals {
    pub(crate) fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.messages.fetch_add(1, Relaxed);
    }

    /// Counts a piece of a message; the message counts once it is complete.
    pub(crate) fn count_piece(&self) {
        self.pieces.fetch_add(1, Relaxed);
    }

    /// The number of messages and pieces: while it changes, the test makes progress.
    pub(crate) fn activity(&self) -> u64 {
        self.messages() + self.pieces.load(Relaxed)
    }

    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Relaxed)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
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
        self.window_open.store(true, Relaxed);
        Window {
            at: *self.opened.get_or_init(Instant::now),
            bytes: self.bytes(),
            messages: self.messages(),
            cpu_ns: socket::cpu_ns(),
        }
    }

    /// Closes the window. Later arrivals count in [`Self::messages`] and [`Self::bytes`] only.
    ///
    /// If each of the flows has received its last datagram, the window ended then: nothing was sent since, and a longer
    /// window would give too low a rate.
    pub(crate) fn close_window(&self, since: &Window, flows: u16) -> End {
        let now = *self.closed.get_or_init(Instant::now);
        self.window_open.store(false, Relaxed);
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
        End {
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            bytes: self.bytes() - since.bytes,
            messages: self.messages() - since.messages,
            all_messages: self.messages(),
            all_bytes: self.bytes(),
            cpu_ns: socket::cpu_ns().saturating_sub(since.cpu_ns),
            ..*buffers
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
        self.ended.notify_all();
    }

    /// Counts a flow that has reached its other end.
    pub(crate) fn count_connected(&self) {
        self.connected.fetch_add(1, Relaxed);
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }

    /// Counts a flow that has received its last datagram.
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

    /// Waits until a flow has ended, or for so long.
    fn wait<'a>(&self, shared: MutexGuard<'a, Shared>, long: Duration) -> MutexGuard<'a, Shared> {
        let waited = self.ended.wait_timeout(shared, long);
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

    #[test]
    fn abort_wakes_waiting_flows() {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let met = UdpSocket::bind("127.0.0.1:0").unwrap();
        met.connect(peer.local_addr().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let totals = Totals::default();
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
        let totals = Totals::default();
        let window = totals.open_window();
        totals.count(100);
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
        let totals = Totals::default();
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
        let totals = Totals::default();
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
