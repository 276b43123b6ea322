//! What the flows of a test have done so far, together.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::{SockRef, Socket};

use crate::outcome::End;
use crate::socket;

/// How often it is looked whether something has come.
const LOOK: Duration = Duration::from_millis(1);

/// Counts, and the word to begin and to stop.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    bytes: AtomicU64,
    messages: AtomicU64,
    pieces: AtomicU64,
    lost: AtomicU64,
    measured: AtomicBool,
    opened: OnceLock<Instant>,
    closed: OnceLock<Instant>,
    stopped: AtomicBool,
    given_up: AtomicBool,
    ready: AtomicUsize,
    running: AtomicUsize,
    shared: Mutex<Shared>,
    /// A flow has.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    /// To cut what waits in a read or write, and to tell of their buffers.
    sockets: Vec<Socket>,
    listeners: Vec<Socket>,
    buffers: End,
    fault: Option<String>,
    /// How many flows have had their last datagram, and when the last of them did.
    parted: u16,
    parted_at: Option<Instant>,
}

/// Cuts the flows when it is dropped: whoever leaves the scope of their threads, which waits for them, and be it by a
/// panic, does not wait for ever.
#[derive(Debug)]
pub(crate) struct Cut<'a>(&'a Totals);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.cut();
    }
}

/// Where the measured window begins.
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

    /// A piece of a message has come or gone, which is counted when all of it has.
    pub(crate) fn count_piece(&self) {
        self.pieces.fetch_add(1, Relaxed);
    }

    /// How many messages, and pieces of them, there were: while it changes, nothing stands still.
    pub(crate) fn activity(&self) -> u64 {
        self.messages() + self.pieces.load(Relaxed)
    }

    pub(crate) fn lose(&self) {
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

    /// The window is open.
    pub(crate) fn is_measured(&self) -> bool {
        self.measured.load(Relaxed)
    }

    /// From when to when it was, once it is closed.
    pub(crate) fn measured(&self) -> Option<(Instant, Instant)> {
        self.opened.get().copied().zip(self.closed.get().copied())
    }

    /// Whether it was for some of the time from `begin` until now.
    pub(crate) fn was_measured_since(&self, begin: Instant) -> bool {
        let ended = self.closed.get().is_some_and(|closed| *closed <= begin);
        self.opened.get().is_some() && !ended
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// What is under way now, nobody waits for any longer.
    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.load(Relaxed)
    }

    /// Opens the window.
    pub(crate) fn mark(&self) -> Window {
        self.measured.store(true, Relaxed);
        Window {
            at: *self.opened.get_or_init(Instant::now),
            bytes: self.bytes(),
            messages: self.messages(),
            cpu_ns: socket::cpu_ns(),
        }
    }

    /// Closes it. What arrives later is in `all_messages` alone, once it is asked for.
    ///
    /// Where each of the flows has had its last datagram, the window was over then: nothing was sent in what has passed
    /// since, and who divided by it would find less than what arrived.
    pub(crate) fn close(&self, since: &Window, flows: u16) -> End {
        let now = *self.closed.get_or_init(Instant::now);
        self.measured.store(false, Relaxed);
        let mut shared = self.shared();
        let end = shared.parted_at.filter(|_| shared.parted == flows);
        let window = end.unwrap_or(now).saturating_duration_since(since.at);
        // TCP's grow while they are used.
        let Shared {
            sockets, buffers, ..
        } = &mut *shared;
        for socket in sockets {
            socket::buffers(&SockRef::from(&*socket), buffers);
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

    /// Each flow goes when it has finished what it does.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Those that still wait for the other end do not any more.
    pub(crate) fn cut(&self) {
        self.stop();
        self.given_up.store(true, Relaxed);
        let mut shared = self.shared();
        let Shared {
            sockets, listeners, ..
        } = &mut *shared;
        for socket in sockets.drain(..).chain(listeners.drain(..)) {
            // One that is closed already is what was wanted; a read of one without a connection ends, too.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// As [`Self::cut`], when what is returned is dropped.
    pub(crate) fn cut_later(&self) -> Cut<'_> {
        Cut(self)
    }

    /// Runs a flow; what ends it before it was stopped is a fault.
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

    /// A flow has met its other end.
    pub(crate) fn met(&self) {
        self.ready.fetch_add(1, Relaxed);
    }

    pub(crate) fn have_met(&self) -> usize {
        self.ready.load(Relaxed)
    }

    /// A flow of datagrams has had its last one.
    pub(crate) fn part(&self) {
        let mut shared = self.shared();
        shared.parted += 1;
        shared.parted_at = Some(Instant::now());
    }

    fn is_running(&self) -> bool {
        self.running.load(Relaxed) > 0
    }

    /// Waits until the flows have done what they had begun, and gives up what takes longer than this.
    pub(crate) fn finish(&self, at_most: Duration) {
        let begun = Instant::now();
        let mut shared = self.shared();
        while self.is_running() {
            let left = at_most.saturating_sub(begun.elapsed());
            if left.is_zero() {
                self.given_up.store(true, Relaxed);
                break;
            }
            shared = self.wait(shared, left);
        }
    }

    /// Waits until what was on the way has arrived: all bytes that were sent, or nothing has come for so
    /// long, or the flows have ended.
    pub(crate) fn rest(&self, due: u64, quiet: Duration, at_most: Duration) {
        let begun = Instant::now();
        let (mut seen, mut since) = (self.messages(), begun);
        let arrived = || !self.is_running() || self.bytes() >= due;
        let mut shared = self.shared();
        while !arrived() && since.elapsed() < quiet && begun.elapsed() < at_most {
            shared = self.wait(shared, LOOK);
            let now = self.messages();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    /// Until a flow has ended, or for so long.
    fn wait<'a>(&self, shared: MutexGuard<'a, Shared>, long: Duration) -> MutexGuard<'a, Shared> {
        let waited = self.ended.wait_timeout(shared, long);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.shared().fault.clone()
    }

    /// A socket that may have to be cut, and whose buffers are told of.
    ///
    /// # Errors
    /// Of duplicating its descriptor.
    pub(crate) fn adopt(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let clone = socket.try_clone()?;
        self.sizes(socket);
        self.shared().sockets.push(clone);
        self.cut_if_stopped();
        Ok(())
    }

    /// One that waits for connections, and has to be woken.
    ///
    /// # Errors
    /// As [`Self::adopt`].
    pub(crate) fn adopt_listener(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let clone = socket.try_clone()?;
        self.shared().listeners.push(clone);
        self.cut_if_stopped();
        Ok(())
    }

    fn cut_if_stopped(&self) {
        if self.is_stopped() {
            self.cut();
        }
    }

    pub(crate) fn sizes(&self, socket: &SockRef<'_>) {
        socket::buffers(socket, &mut self.shared().buffers);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Whole between any two statements.
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
    fn who_waits_is_woken_by_a_cut() {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let met = UdpSocket::bind("127.0.0.1:0").unwrap();
        met.connect(peer.local_addr().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let totals = Totals::default();
        totals.adopt(&(&datagrams).into()).unwrap();
        totals.adopt(&(&met).into()).unwrap();
        totals.adopt_listener(&(&listener).into()).unwrap();
        // None of these has a time-out: without the cut the test never ends.
        thread::scope(|scope| {
            scope.spawn(|| datagrams.recv(&mut [0; 9]));
            scope.spawn(|| assert_eq!(met.recv(&mut [0; 9]).unwrap(), 0));
            scope.spawn(|| listener.accept().unwrap_err());
            totals.cut();
        });
        // Who comes later finds it cut.
        let late = UdpSocket::bind("127.0.0.1:0").unwrap();
        totals.adopt(&(&late).into()).unwrap();
        let _ended = late.recv(&mut [0; 9]);
    }

    #[test]
    fn the_window_of_who_receives_ends_with_the_last_datagram() {
        let totals = Totals::default();
        let window = totals.mark();
        totals.count(100);
        totals.part();
        thread::sleep(Duration::from_millis(1));
        totals.part();
        let parted = totals.shared().parted_at.unwrap() - window.at;
        thread::sleep(Duration::from_millis(1));
        let ns = u64::try_from(parted.as_nanos()).unwrap();
        assert_eq!(totals.close(&window, 2).window_ns, ns);
        // One of three has not had it: what it may still send counts.
        assert!(totals.close(&window, 3).window_ns > ns);
    }

    #[test]
    fn buffers_are_the_largest_that_they_were() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let totals = Totals::default();
        let kept = SockRef::from(&socket);
        let was = |end: &End| (end.send_buffer, end.receive_buffer);
        kept.set_recv_buffer_size(20_000).unwrap();
        kept.set_send_buffer_size(30_000).unwrap();
        totals.adopt(&kept).unwrap();
        let window = totals.mark();
        kept.set_recv_buffer_size(25_000).unwrap();
        kept.set_send_buffer_size(10_000).unwrap();
        let end = totals.close(&window, 1);
        assert_eq!(was(&end), (60_000, 50_000));
    }

    #[test]
    fn who_waits_for_the_flows_is_told_when_they_have_ended() {
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
            let before = totals.has_given_up();
            totals.finish(Duration::from_millis(1));
            let after = totals.has_given_up();
            scope.spawn(move || {
                // For longer than any test lasts.
                totals.finish(Duration::from_hours(1));
                totals.rest(u64::MAX, Duration::from_hours(1), Duration::from_hours(1));
            });
            go.send(()).unwrap();
            assert_eq!((before, after), (false, true));
        });
        assert_eq!(totals.fault(), None);
        totals.run(|| Err(io::ErrorKind::BrokenPipe.into()));
        assert!(totals.fault().is_some());
    }
}
