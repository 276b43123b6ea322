//! Changes of routes go before the machine's other work, as long as they are few: packets go a dead way until
//! the thread that carries them out has got a CPU.

use std::time::{Duration, Instant};

use sys::sched;

/// How long it goes first once something has come. A table's worth of changes takes longer, and must not keep
/// a CPU from the packets themselves: the kernel's own threads that forward have no such right.
const AHEAD: Duration = Duration::from_millis(2);
/// The lowest of the real-time priorities: above all ordinary threads, and below whatever else asks for more.
const PRIORITY: u8 = 1;

/// Of the calling thread: whether it goes first.
#[derive(Debug, Default)]
pub(crate) struct First {
    goes: bool,
    since: Option<Instant>,
}

impl First {
    /// It is about to wait for something to do. Who may not go first is an ordinary thread, and late on a busy
    /// machine.
    pub(crate) fn waits(&mut self) {
        self.since = None;
        if !self.goes {
            self.goes = sched::fifo(PRIORITY).is_ok();
        }
    }

    /// It has something to do.
    pub(crate) fn works(&mut self) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > AHEAD {
            self.yields();
        }
    }

    /// What it does now can take long.
    pub(crate) fn yields(&mut self) {
        if self.goes {
            self.goes = sched::ordinary().is_err();
        }
    }
}
