//! When a capture is polled next: not before there is something to do, because each poll takes a CPU away from
//! who writes to the tree.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{Capture, Error, INTERVAL, LONG, MUCH, Reading, program};

impl Capture {
    /// Waits until there is something to poll for: a program has synced, much waits, or an epoch is due; not longer
    /// than `at_most`, nor when `also` is readable. Whether what was waited for is a reason to poll at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn wait(&mut self, at_most: Duration, also: Option<BorrowedFd<'_>>) -> Result<bool, Error> {
        let (pause, began) = (self.pause().min(at_most), Instant::now());
        let least = INTERVAL.min(pause);
        // Who has called calls again soon: to wake up for that once is enough. Where nobody has, the pause is one as well.
        if self.called {
            program::wait(also.into_iter(), least)?;
        }
        self.called = self
            .programs
            .wait(pause.saturating_sub(began.elapsed()), also)?;
        let rest = least.saturating_sub(began.elapsed());
        if self.called && !rest.is_zero() {
            program::wait(also.into_iter(), rest)?;
        }
        Ok(self.called)
    }

    /// For how long a poll would do nothing that has to be done, if nobody syncs: until the next epoch is due.
    fn pause(&self) -> Duration {
        let certain = self.deriver.doubts.is_empty();
        let read = matches!(self.reading, Reading::Idle) && (certain || !self.ripe());
        if self.wanted || self.epoch == 0 || !read {
            return INTERVAL;
        }
        // Nor does any epoch end before all is certain.
        if !certain {
            return self.until_ripe().max(INTERVAL);
        }
        let due = match self.deriver.said && self.bytes <= MUCH {
            true => LONG.saturating_sub(self.ended.elapsed()),
            false => LONG,
        };
        due.max(INTERVAL)
    }
}
