//! Decides when what is in doubt is read, and when that is done with: between two numbers of events, so that what
//! was told before is said before, and what was told meanwhile after.

use std::time::{Duration, Instant};

use super::doubt::Doubts;
use super::{Capture, Error, Listener, Reading};
use crate::record::Change;

/// Who tells only where it was written is read from so often, while nothing is synced, and so often a file system
/// is made to commit its journal that has data in it.
const JOURNAL: Duration = Duration::from_millis(200);

impl Capture {
    /// Goes on reading what is in doubt; whether more can be done at once.
    pub(super) fn settle(&mut self, listener: &mut dyn Listener) -> Result<bool, Error> {
        match std::mem::replace(&mut self.reading, Reading::Idle) {
            Reading::Idle if self.deriver.doubts.is_empty() || !self.ripe() => Ok(false),
            Reading::Idle => {
                let doubts = std::mem::take(&mut self.deriver.doubts);
                if self.paced() {
                    self.last_reading = Instant::now();
                }
                if doubts.values().any(|doubt| doubt.stores) {
                    // A page is told to be dirty before it is marked so, under a spinlock, and only then found by
                    // what makes it clean: not to be told of a store again, where a hypervisor has stopped that CPU.
                    let _unknown = sys::sched::grace_period();
                }
                for (file, doubt) in &doubts {
                    self.deriver.clean(*file, doubt)?;
                }
                let after = self.programs.counters()?.next;
                self.reading = Reading::Armed { after, doubts };
                self.follow(listener)?;
                Ok(true)
            }
            Reading::Armed { after, doubts } if self.reached(after)? => {
                self.reading = Reading::Now {
                    files: doubts.len(),
                };
                // Nothing is derived until all has been read: what was told before, also of a file that is about to be
                // found, is there to be read, and what is written from now on is told once more.
                if self.options.journal {
                    self.programs.next_period()?;
                }
                if std::mem::take(&mut self.unscanned) {
                    self.rescan(listener)?;
                }
                self.read_all(&doubts, listener)?;
                let after = self.programs.counters()?.next;
                self.reading = Reading::Closing { after, doubts };
                self.follow(listener)?;
                Ok(true)
            }
            Reading::Closing { after, doubts } if self.reached(after)? => {
                self.settled(doubts);
                self.pass_on(listener)?;
                // What is in doubt since is read by the next call: its writer may go on for ever.
                Ok(false)
            }
            waiting => {
                self.reading = waiting;
                Ok(false)
            }
        }
    }

    /// Whether what is in doubt is to be read now: what is written again and again is read once.
    pub(super) fn ripe(&self) -> bool {
        !self.paced() || self.wanted || self.epoch == 0 || self.until_ripe().is_zero()
    }

    fn paced(&self) -> bool {
        self.options.journal || self.deriver.source.journals_data()
    }

    /// For how long what is in doubt may wait yet, if nothing is synced.
    pub(super) fn until_ripe(&self) -> Duration {
        JOURNAL.saturating_sub(self.last_reading.elapsed())
    }

    fn settled(&mut self, doubts: Doubts) {
        for (file, doubt) in doubts {
            let since = self.deriver.doubts.get_mut(&file);
            for part in doubt.settled(since) {
                self.deriver.say(Change::Settled { file, part });
            }
        }
    }
}
