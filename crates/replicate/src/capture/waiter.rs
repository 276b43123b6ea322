//! Waits until a capture has to be polled, and no shorter, because each poll takes CPU time from
//! the programs that write to the tree.

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
    /// Waits for `pause`, until a program calls, or until `also` is readable. Returns whether a
    /// program called.
    pub(super) fn wait(
        &mut self,
        programs: &mut Programs,
        pause: Duration,
        also: Option<BorrowedFd<'_>>,
    ) -> Result<bool, Error> {
        let began = Instant::now();
        let least = INTERVAL.min(pause);
        // A program that has called soon calls again, so waking once is enough. Otherwise the pause
        // has the same effect.
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
