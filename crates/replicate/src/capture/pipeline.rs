//! The path of an event: from the ring into the tree as the log has it, and from there to the
//! listener.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::call_groups::CallGroups;
use super::derive::Deriver;
use super::epochs::Epochs;
use super::event::What;
use super::maps::Counters;
use super::queue::EventQueue;
use super::shadow::ShadowTree;
use super::{Error, Listener, Progress};
use crate::record::{Change, Entry, File, Name};

/// The number of batches of events that are taken at once.
pub(super) const PORTIONS: usize = 512;

/// Carries events from the BPF programs to the listener.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) queue: EventQueue,
    pub(super) shadow: ShadowTree,
    groups: CallGroups,
    pub(super) epochs: Epochs,
    readback: ReadbackLoad,
    /// Events with this number or a higher one wait until everything that was read before them is
    /// recorded.
    end: u64,
    /// Changes have been derived from all events below this number.
    derived: u64,
}

/// The demands of a readback on the pipeline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadbackLoad {
    /// The number of files that are being read.
    pub(super) files: usize,
    /// No changes are derived until everything is read, so the ring has to be emptied meanwhile.
    pub(super) defers_events: bool,
}

impl Pipeline {
    pub(super) fn new(queue: EventQueue, shadow: ShadowTree, epochs: Epochs) -> Self {
        Self {
            queue,
            shadow,
            groups: CallGroups::default(),
            epochs,
            readback: ReadbackLoad::default(),
            end: u64::MAX,
            derived: 0,
        }
    }

    /// Makes events from this number on wait. `None` lifts the limit.
    pub(super) fn stop_at(&mut self, end: Option<u64>) {
        self.end = end.unwrap_or(u64::MAX);
    }

    pub(super) fn set_readback(&mut self, load: ReadbackLoad) {
        self.readback = load;
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            events: self.queue.received(),
            waiting: self.queue.programs().waiting(),
            dropped: self.queue.dropped(),
            doubtful: self.shadow.doubts.len() + self.readback.files,
            stale: self.shadow.tree.stale().count(),
            held: self.shadow.hold_back.age(),
            read_back: self.shadow.read_back,
            dirty: self.shadow.dirty_pages.bytes(),
            files: self.shadow.tree.len(),
            epoch: self.epochs.last(),
            synced: self.epochs.synced(),
            rescan: self.shadow.comparison.rescan(),
        }
    }

    /// Takes events out of the ring. Returns whether there are more.
    pub(super) fn drain(&mut self) -> Result<bool, Error> {
        let mut late = Vec::new();
        let more = self.queue.drain(&mut late)?;
        if !late.is_empty() {
            self.shadow.hold_back.disturb_all();
            self.groups.cut_short(&mut self.shadow);
        }
        for event in late {
            self.deriver().take_late(event);
        }
        Ok(more)
    }

    /// Derives changes from the event that is due. Returns whether an epoch may end after it, or
    /// `None` if no event is due.
    pub(super) fn derive_next(&mut self) -> Result<Option<bool>, Error> {
        let Some(event) = self.queue.pop(self.end) else {
            return Ok(None);
        };
        if event.what == What::Sync {
            self.epochs.note_barrier(event.number);
        }
        let (number, quiet) = (event.number, event.flags.quiet());
        self.shadow.event = Some(number);
        self.deriver().take(event)?;
        self.shadow.event = None;
        self.derived = number + 1;
        Ok(Some(quiet && self.is_wanted()))
    }

    /// Puts in doubt the files that lost events were about. Returns the number of lost events.
    pub(super) fn account(&mut self) -> Result<u64, Error> {
        let losses = self.queue.losses()?;
        if losses.files.is_some() || losses.any_file {
            self.shadow.hold_back.disturb_all();
        }
        if let Some(files) = losses.files {
            for file in files {
                for file in self.shadow.source.called(file) {
                    self.shadow.raise_file_doubts(file);
                }
            }
            self.shadow.raise_nameless_doubts();
        }
        if losses.any_file {
            let files: Vec<_> = self.shadow.tree.files().map(|(file, _)| file).collect();
            for file in files {
                self.shadow.raise_file_doubts(file);
            }
        }
        Ok(losses.dropped)
    }

    /// Skips the numbers of lost events. Returns whether later events are now due.
    pub(super) fn skip_lost(&mut self, dropped: u64) -> bool {
        let skipped = self.queue.skip(dropped);
        if skipped {
            self.groups.cut_short(&mut self.shadow);
        }
        skipped
    }

    /// Whether every event below this number has been processed, or is lost and accounted for.
    pub(super) fn reached(&mut self, number: u64) -> Result<bool, Error> {
        let reached = self.queue.reached(number)?;
        if reached {
            self.derived = self.derived.max(number);
        }
        if self.queue.has_gap() {
            self.groups.cut_short(&mut self.shadow);
        }
        Ok(reached)
    }

    /// Whether the recorded changes have waited long enough for an epoch.
    pub(super) fn is_due(&self) -> bool {
        self.shadow.said && self.epochs.is_due()
    }

    /// Whether a moment without an operation should become an epoch.
    pub(super) fn is_wanted(&self) -> bool {
        self.epochs.has_barrier() || self.is_due()
    }

    /// The files that an epoch would contain in an earlier state, or `None` if there can be no
    /// epoch yet.
    pub(super) fn stale(&self) -> Result<Option<BTreeSet<File>>, Error> {
        if !self.queue.is_accounted()? {
            return Ok(None);
        }
        let patience = self.epochs.max_rereads();
        let stale = self.shadow.stale(patience.unwrap_or(u32::MAX));
        Ok(stale.filter(|stale| stale.is_empty() || patience.is_some()))
    }

    /// Whether an epoch contains all events below this number: a later one than this, or the last
    /// one if nothing was recorded since.
    pub(super) fn has_told(&mut self, number: u64, epoch: u64) -> Result<bool, Error> {
        let told = self.epochs.has_whole(epoch, number);
        Ok(told || (self.shadow.is_told() && self.reached(number)?))
    }

    /// Whether nothing has happened since these counters were read, and all earlier events have
    /// been processed.
    pub(super) fn is_still(&mut self, counters: &Counters) -> Result<bool, Error> {
        let received = self.queue.received();
        self.drain()?;
        let still = self.queue.received() == received && self.queue.counters()? == *counters;
        Ok(still && counters.operations == 0 && self.reached(counters.next)?)
    }

    /// Ends an epoch with the recorded changes, and with an earlier state of these files. Returns
    /// false if nothing was recorded, or if the tree is in no valid state for an epoch. No
    /// operation may be under way.
    pub(super) fn end_epoch(&mut self, stale: &BTreeSet<File>) -> bool {
        // A later sync may concern files that the epoch has in their state before it.
        let state = self.shadow.hold_back.state_of(stale);
        self.shadow.release();
        self.shadow.remove_nameless();
        if !self.shadow.said {
            // The last epoch contains everything, so whatever was synced is in it already.
            self.epochs.answer_barrier(u64::MAX);
            return false;
        }
        let stale = stale.iter().map(|file| Entry::Stale { file: *file });
        let stale: Vec<_> = stale
            .filter(|entry| self.shadow.tree.enter(entry).is_ok())
            .collect();
        let entry = Entry::Epoch {
            number: self.epochs.last() + 1,
        };
        if let Err(invalid) = self.shadow.tree.enter(&entry) {
            self.shadow.distrust(&invalid);
            return false;
        }
        if self.epochs.answers(state) {
            self.shadow.out.push(Entry::Barrier);
        }
        let whole = stale.is_empty();
        // The next epoch has to contain what is missing in this one.
        self.shadow.said = !whole;
        self.shadow.out.extend(stale);
        self.shadow.out.push(entry);
        self.epochs.begin_next();
        self.shadow.dirty_pages.begin_epoch();
        if whole {
            self.epochs.note_whole(self.derived);
        }
        self.epochs.answer_barrier(state);
        self.shadow.adrift = None;
        self.shadow.comparison.finish();
        true
    }

    /// Hands on the recorded changes, makes room in the ring, and asks the listener whether to
    /// continue.
    pub(super) fn pass_on(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        self.hand_over(listener)?;
        // No events are processed until everything is read, so take as many as there are.
        let portions = match self.readback.defers_events {
            true => PORTIONS,
            false => 1,
        };
        for _ in 0..portions {
            if !self.drain()? {
                break;
            }
        }
        match listener.meanwhile(&self.progress()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Ended),
        }
    }

    /// Hands the recorded changes to the listener.
    pub(super) fn hand_over(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        let Self { shadow, epochs, .. } = self;
        let handed = shadow.out.hand_on(|entry| {
            let epoch = matches!(entry, Entry::Epoch { .. });
            if let Entry::Change(Change::Data { bytes, .. }) = &entry {
                epochs.count(bytes.len());
            }
            listener.take(entry);
            if epoch {
                epochs.end();
            }
        });
        handed.map_err(Error::io("what was held back on the disk"))
    }

    /// Makes the programs report files that they take to be outside of the tree, and that are about
    /// to be read.
    pub(super) fn reveal(&mut self, entries: &[(Name, File)]) -> Result<(), Error> {
        if self.shadow.source.has_outside() && !self.shadow.has_all(entries) {
            self.queue.programs_mut().reveal_files()?;
        }
        Ok(())
    }

    fn deriver(&mut self) -> Deriver<'_> {
        Deriver::new(&mut self.shadow, &mut self.groups)
    }
}
