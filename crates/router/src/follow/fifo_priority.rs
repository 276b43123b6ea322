//! Real-time priority for the threads that apply changes of routes. Until a changed route is applied, packets
//! follow the old one, and on a busy machine an ordinary thread waits for a CPU.

use std::time::{Duration, Instant};

use sys::sched;

/// How long a thread keeps the priority after work has arrived. A whole table takes longer, and must not keep
/// a CPU from packets: the kernel threads that forward have no such priority.
const TIME_SLICE: Duration = Duration::from_millis(2);
/// The lowest real-time priority: above all ordinary threads, below all other real-time threads.
const PRIORITY: u8 = 1;

/// The scheduling of the calling thread: `SCHED_FIFO` while it waits and during short work.
#[derive(Debug, Default)]
pub(crate) struct FifoPriority {
    active: bool,
    since: Option<Instant>,
}

impl FifoPriority {
    /// Takes the priority before the thread waits for work. Without the capability for it, the thread remains
    /// an ordinary one.
    pub(crate) fn before_wait(&mut self) {
        self.since = None;
        if !self.active {
            self.active = sched::fifo(PRIORITY).is_ok();
        }
    }

    /// Starts the time slice, or gives the priority up once it is over.
    pub(crate) fn before_work(&mut self) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > TIME_SLICE {
            self.release();
        }
    }

    /// Gives the priority up before long work.
    pub(crate) fn release(&mut self) {
        if self.active {
            self.active = sched::ordinary().is_err();
        }
    }
}
