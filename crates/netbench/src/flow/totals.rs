//! What the flows of a test have done so far, together.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::outcome::End;
use crate::socket;

/// Counts, and the word to begin and to stop.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    bytes: AtomicU64,
    messages: AtomicU64,
    lost: AtomicU64,
    measured: AtomicBool,
    stopped: AtomicBool,
    ready: AtomicUsize,
    running: AtomicUsize,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// To cut what waits in a read or write.
    streams: Vec<TcpStream>,
    buffers: End,
    fault: Option<String>,
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

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Opens the window.
    pub(crate) fn mark(&self) -> Window {
        self.measured.store(true, Relaxed);
        Window {
            at: Instant::now(),
            bytes: self.bytes(),
            messages: self.messages(),
            cpu_ns: socket::cpu_ns(),
        }
    }

    /// Closes it. What arrives later is in `all_messages` alone, once it is asked for.
    pub(crate) fn close(&self, since: &Window) -> End {
        self.measured.store(false, Relaxed);
        let window = since.at.elapsed();
        End {
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            bytes: self.bytes() - since.bytes,
            messages: self.messages() - since.messages,
            all_messages: self.messages(),
            all_bytes: self.bytes(),
            cpu_ns: socket::cpu_ns().saturating_sub(since.cpu_ns),
            ..self.shared().buffers
        }
    }

    /// Each flow goes when it has finished what it does.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Those that still wait for the other end do not any more.
    pub(crate) fn cut(&self) {
        self.stop();
        for stream in self.shared().streams.drain(..) {
            // One that is closed already is what was wanted.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Runs a flow; what ends it before it was stopped is a fault.
    pub(crate) fn run<T>(&self, flow: impl FnOnce() -> io::Result<T>) -> Option<T> {
        self.running.fetch_add(1, Relaxed);
        let ended = flow();
        self.running.fetch_sub(1, Relaxed);
        match ended {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.is_stopped() {
                    self.shared().fault.get_or_insert_with(|| error.to_string());
                }
                None
            }
        }
    }

    /// A flow has met its other end.
    pub(crate) fn met(&self) {
        self.ready.fetch_add(1, Relaxed);
    }

    pub(crate) fn have_met(&self) -> usize {
        self.ready.load(Relaxed)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Relaxed) > 0
    }

    /// Waits until what was on the way has arrived: all bytes that were sent, or nothing has come for so
    /// long, or the flows have ended.
    pub(crate) fn rest(&self, due: u64, quiet: Duration, at_most: Duration) {
        let begun = Instant::now();
        let (mut seen, mut since) = (self.messages(), begun);
        let arrived = || !self.is_running() || self.bytes() >= due;
        while !arrived() && since.elapsed() < quiet && begun.elapsed() < at_most {
            thread::sleep(Duration::from_millis(1));
            let now = self.messages();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.shared().fault.clone()
    }

    /// A connection that may have to be cut, and whose buffers are told of.
    ///
    /// # Errors
    /// Of duplicating its descriptor.
    pub(crate) fn adopt(&self, stream: &TcpStream) -> io::Result<()> {
        let clone = stream.try_clone()?;
        self.sizes(&stream.into());
        self.shared().streams.push(clone);
        if self.is_stopped() {
            self.cut();
        }
        Ok(())
    }

    pub(crate) fn sizes(&self, socket: &SockRef<'_>) {
        socket::buffers(socket, &mut self.shared().buffers);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Whole between any two statements.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
