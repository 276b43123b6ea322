//! The way of events: out of the ring into the tree as the log says it, and from there to the listener.

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

/// Portions of events that are taken at once.
pub(super) const PORTIONS: usize = 512;

/// From the programs to the listener.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) queue: EventQueue,
    pub(super) shadow: ShadowTree,
    groups: CallGroups,
    pub(super) epochs: Epochs,
    readback: ReadbackLoad,
    /// Events from this number on wait until what was read before them is said.
    end: u64,
    /// Events before this number have been derived from.
    derived: u64,
}

/// What a readback asks of the pipeline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadbackLoad {
    /// Files that are read.
    pub(super) files: usize,
    /// Nobody derives from events until all is read: the ring has to be emptied meanwhile.
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

    /// Has events from this number on wait; with none, no more.
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

    /// Takes events out of the ring; whether there are more.
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

    /// Derives what follows from the event that is due: whether an epoch may end with it. None where no event is due.
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

    /// Puts in doubt what lost events were about; how many are lost.
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

    /// Gives up numbers of events that are lost; whether events behind them are due now.
    pub(super) fn skip_lost(&mut self, dropped: u64) -> bool {
        let skipped = self.queue.skip(dropped);
        if skipped {
            self.groups.cut_short(&mut self.shadow);
        }
        skipped
    }

    /// Whether all events before this number have been derived from, or are lost and accounted for.
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

    /// Whether what was said has waited for long enough.
    pub(super) fn is_due(&self) -> bool {
        self.shadow.said && self.epochs.is_due()
    }

    /// Whether a moment without an operation is to be an epoch.
    pub(super) fn is_wanted(&self) -> bool {
        self.epochs.has_barrier() || self.is_due()
    }

    /// The files that an epoch would have in an earlier state; none where there can be no epoch yet.
    pub(super) fn stale(&self) -> Result<Option<BTreeSet<File>>, Error> {
        if !self.queue.is_accounted()? {
            return Ok(None);
        }
        let patience = self.epochs.max_rereads();
        let stale = self.shadow.stale(patience.unwrap_or(u32::MAX));
        Ok(stale.filter(|stale| stale.is_empty() || patience.is_some()))
    }

    /// Whether an epoch has all events before this number: one after this epoch, or any where nothing was said since.
    pub(super) fn has_told(&mut self, number: u64, epoch: u64) -> Result<bool, Error> {
        let told = self.epochs.has_whole(epoch, number);
        Ok(told || (self.shadow.is_told() && self.reached(number)?))
    }

    /// Whether nothing has happened since these counters, and all before has been derived from.
    pub(super) fn is_still(&mut self, counters: &Counters) -> Result<bool, Error> {
        let received = self.queue.received();
        self.drain()?;
        let still = self.queue.received() == received && self.queue.counters()? == *counters;
        Ok(still && counters.operations == 0 && self.reached(counters.next)?)
    }

    /// Ends an epoch with what was said, and an earlier state of these files; false where nothing was, or the tree is in
    /// no state for it. No operation may be under way.
    pub(super) fn end_epoch(&mut self, stale: &BTreeSet<File>) -> bool {
        // What was synced later may be in files that the epoch has as they were before.
        let state = self.shadow.hold_back.state_of(stale);
        self.shadow.release();
        self.shadow.remove_nameless();
        if !self.shadow.said {
            // The last epoch has it all: what is written down of it may be what was synced.
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
        // What is missing is to be in the next one.
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

    /// Hands on what was said, makes room in the ring, and asks whether to go on.
    pub(super) fn pass_on(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        self.hand_over(listener)?;
        // Nobody takes what is there until all is read.
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

    /// Hands on what was said.
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

    /// What the programs take for outside of the tree is not told of, and about to be read.
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
