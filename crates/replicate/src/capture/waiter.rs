//! Waits until a capture is to be polled: not before there is something to do, because each poll takes a CPU away from
//! who writes to the tree.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::program::{self, Programs};
use super::{Error, INTERVAL};

/// Whether the last wait was ended by a call.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    called: bool,
}

impl Waiter {
    /// Waits for as long as `pause`, or until a program calls or `also` is readable; whether a program called.
    pub(super) fn wait(
        &mut self,
        programs: &mut Programs,
        pause: Duration,
        also: Option<BorrowedFd<'_>>,
    ) -> Result<bool, Error> {
        let began = Instant::now();
        let least = INTERVAL.min(pause);
        // Who has called calls again soon: to wake up for that once is enough. Where nobody has, the pause is one as well.
        if self.called {
            program::wait(also.into_iter(), least)?;
        }
        self.called = programs.wait(pause.saturating_sub(began.elapsed()), also)?;
        let rest = least.saturating_sub(began.elapsed());
        if self.called && !rest.is_zero() {
            program::wait(also.into_iter(), rest)?;
        }
        Ok(self.called)
    }
}
