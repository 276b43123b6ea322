//! Follows what happens to a tree, and says it in records: what was seen exactly at once, what was
//! not seen once it has been read. It decides when the records are a state that the source had.

mod begin;
mod border;
mod calls;
mod derive;
mod doubt;
mod error;
mod event;
mod events;
mod extended;
mod format;
mod functions;
mod group;
mod hooks;
mod listener;
mod look;
mod mounts;
mod names;
mod order;
mod overlay;
mod pace;
mod pin;
mod place;
mod program;
mod read;
mod rescan;
mod settle;
mod skel;
mod source;
mod suspect;
mod vague;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use crate::patterns::Patterns;
use crate::record::{Change, Entry, File, Name, Part};
use crate::tree::Tree;
use derive::Deriver;
use doubt::Doubts;
pub use error::Error;
pub use functions::check as functions;
use order::{Late, Order};
use pace::Pace;
use pin::Journal;
use place::Place;
use program::Programs;
use sys::bpf_ring::Gauge;

pub use listener::Listener;
pub use pin::{FOLDER, Pin};
pub use rescan::{Known, Rescan};

/// After so much time without an event, what has happened is an epoch.
const STILL: Duration = Duration::from_millis(20);
/// A program that goes on and on and syncs nothing: what it has done for so long is an epoch.
const LONG: Duration = Duration::from_millis(20);
/// Unless these are more bytes: it takes time to have them on the disk, and the ring fills meanwhile.
const MUCH: usize = 4 << 20;
/// Calls that are under way are waited for, unless there was no epoch for so long.
const PATIENCE: Duration = Duration::from_millis(100);
/// Portions of events that are taken at once.
const PORTIONS: usize = 512;

/// How often to poll at most: who reads events as they come disturbs their writers.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// How a tree is followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Room for events that wait to be read: a power of two of pages, in bytes.
    pub ring_bytes: u32,
    /// Tell where files are written, not what, and read that when an epoch is to end.
    pub journal: bool,
    /// Where the file system tells nothing of stores through memory, files that are mapped are read
    /// before each epoch, and each second. Such a file system is refused otherwise.
    pub look: bool,
    /// Which names of the tree are followed.
    pub patterns: Patterns,
    /// Keep a journal of what is touched when this capture is gone, for the next one.
    pub pin: Option<Pin>,
    /// So many bytes of the tree are read in a second at most; none for as many as there are.
    pub rate_limit: Option<NonZeroU64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ring_bytes: 64 << 20,
            journal: false,
            look: false,
            patterns: Patterns::default(),
            pin: None,
            rate_limit: None,
        }
    }
}

/// A tree that is being followed. Dropping it leaves nothing attached.
#[derive(Debug)]
pub struct Capture {
    programs: Programs,
    place: Place,
    pinned: Option<Journal>,
    deriver: Deriver,
    order: Order,
    reading: Reading,
    /// What was found in directories that are being read.
    listed: BTreeMap<File, BTreeSet<Name>>,
    pace: Pace,
    progress: Progress,
    /// Dropped events of which the files are in doubt, or have been.
    accounted: u64,
    forgotten: u64,
    epoch: u64,
    /// It was called when it waited last.
    called: bool,
    /// A barrier was seen: the next quiet moment is an epoch.
    wanted: bool,
    /// The tree has not been compared yet with the log that is taken up.
    unscanned: bool,
    last_event: Instant,
    /// When the last epoch was handed on.
    ended: Instant,
    /// When calls under way were not waited for any more.
    passed: Instant,
    /// Bytes that were handed on since.
    bytes: usize,
    options: Options,
    last_reading: Instant,
    /// When stores that nobody tells of were looked for.
    looked: Instant,
    looks: bool,
    /// Where events came from.
    hooks: u16,
}

/// How far the capture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events that were seen.
    pub events: u64,
    /// Bytes of events that wait.
    pub waiting: u64,
    /// Events that found no room. What they said has been read instead, or will be.
    pub dropped: u64,
    /// Files of which something is in doubt.
    pub doubtful: usize,
    /// Bytes that were read from the source instead of seen.
    pub read_back: u64,
    /// Files of all kinds that the log has.
    pub files: u64,
    /// The last epoch; zero before the first.
    pub epoch: u64,
    /// The last one that has what a program has synced or renamed: what an epoch since then has, the source may lose
    /// with its power.
    pub synced: u64,
    /// What was found of a log that was taken up.
    pub rescan: Option<Rescan>,
}

/// How far what is in doubt has been read.
#[derive(Debug)]
enum Reading {
    Idle,
    /// Stores from now on are seen; what was told until `after` comes before what is read.
    Armed {
        after: u64,
        doubts: Doubts,
    },
    /// At this moment, of so many files.
    Now {
        files: usize,
    },
    /// Read; what was told until `after` may have been read as well.
    Closing {
        after: u64,
        doubts: Doubts,
    },
}

impl Capture {
    /// Says what has happened since the last call. Does not wait: call it every few milliseconds.
    ///
    /// # Errors
    /// [`Error`] when the source cannot be read, or the listener breaks off; the capture is over then.
    pub fn poll(&mut self, listener: &mut impl Listener) -> Result<Progress, Error> {
        let listener: &mut dyn Listener = listener;
        self.look_around()?;
        self.follow(listener)?;
        while self.settle(listener)? {}
        self.look_often(listener)?;
        // What was to be read at a barrier has been read by now.
        if self.wanted || self.is_due() || self.last_event.elapsed() >= STILL {
            self.rest(listener)?;
        }
        self.pass_on(listener)?;
        if let Some(pinned) = &mut self.pinned {
            pinned.step(&self.programs)?;
        }
        Ok(self.progress())
    }

    /// Polls until an epoch has all that happened before the call; false where that takes longer than
    /// `limit`.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn catch_up(
        &mut self,
        limit: Duration,
        listener: &mut impl Listener,
    ) -> Result<bool, Error> {
        if self.programs.counters()?.operations > 0 {
            // What calls have done that go on has happened, too.
            self.programs.pass_waiting()?;
        }
        let target = self.programs.counters()?.next;
        let begun = Instant::now();
        self.poll(listener)?;
        self.look(listener)?;
        loop {
            self.poll(listener)?;
            // What is reached by giving something up may be in doubt then.
            if self.reached(target)? && !self.deriver.said {
                return Ok(true);
            }
            if begun.elapsed() > limit {
                return Ok(false);
            }
            thread::sleep(INTERVAL);
        }
    }

    /// How far the capture is.
    pub fn progress(&self) -> Progress {
        let read = match &self.reading {
            Reading::Idle => 0,
            Reading::Now { files } => *files,
            Reading::Armed { doubts, .. } | Reading::Closing { doubts, .. } => doubts.len(),
        };
        Progress {
            waiting: self.programs.waiting(),
            doubtful: self.deriver.doubts.len() + read,
            files: self.deriver.tree.len(),
            epoch: self.epoch,
            ..self.progress
        }
    }

    /// The tree as it has been said.
    pub fn tree(&self) -> &Tree {
        &self.deriver.tree
    }

    /// How much room its events have left, for who looks while it is at work.
    pub fn gauge(&self) -> Gauge {
        self.programs.gauge()
    }

    /// Takes events out of the ring; whether there are more.
    fn drain(&mut self) -> Result<bool, Error> {
        let Self {
            programs,
            order,
            progress,
            ..
        } = self;
        let before = progress.events;
        let mut late = Vec::new();
        let more = programs.drain(|event| {
            progress.events += 1;
            if let Err(Late(event)) = order.push(event) {
                late.push(event);
            }
        })?;
        if progress.events != before {
            self.last_event = Instant::now();
        }
        if !late.is_empty() {
            self.deriver.fall_short();
        }
        for event in late {
            for event in self.deriver.source.translate(*event) {
                self.deriver.late(&event);
            }
        }
        Ok(more)
    }

    /// Derives what follows from events that are due.
    fn advance(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        while let Some(event) = self.order.pop() {
            self.wanted |= event.what == event::What::Sync;
            self.hooks |= event.hooks;
            let quiet = event.flags.quiet();
            self.deriver.take(event)?;
            if quiet && (self.wanted || self.is_due()) {
                self.close(listener)?;
            }
        }
        Ok(())
    }

    /// Puts in doubt what lost events were about.
    fn account(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        let counters = self.programs.counters()?;
        self.progress.dropped = counters.dropped;
        if counters.dropped != self.accounted {
            for file in self.programs.take_lost()? {
                for file in self.deriver.source.called(file) {
                    self.deriver.doubt_all(file);
                }
            }
            self.doubt_nameless();
            self.accounted = counters.dropped;
        }
        if counters.forgotten != self.forgotten {
            let files: Vec<_> = self.deriver.tree.files().map(|(file, _)| file).collect();
            for file in files {
                self.deriver.doubt_all(file);
            }
            self.forgotten = counters.forgotten;
        }
        self.order.skip(counters.dropped);
        while self.order.gap() {
            self.deriver.fall_short();
            self.advance(listener)?;
            self.order.skip(counters.dropped);
        }
        Ok(())
    }

    /// That the last user of a file has left it may have been lost.
    fn doubt_nameless(&mut self) {
        let root = self.deriver.tree.root();
        let files = self.deriver.tree.files();
        let nameless: Vec<_> = files
            .filter(|(file, node)| node.names.is_empty() && Some(*file) != root)
            .map(|(file, _)| file)
            .collect();
        for file in nameless {
            self.deriver.doubt(file, Part::Attributes);
            self.deriver.strays(file);
        }
    }

    /// Derives what follows from the events that are there, and says it: not for ever, where they come
    /// faster than they are written down.
    fn follow(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        for _ in 0..PORTIONS {
            let more = self.drain()?;
            self.advance(listener)?;
            self.say(listener);
            if !more {
                break;
            }
        }
        self.account(listener)?;
        self.pass_on(listener)
    }

    fn reached(&mut self, number: u64) -> Result<bool, Error> {
        let lost = self.programs.counters()?.dropped;
        let reached = lost == self.accounted && self.order.reached(number, lost);
        if self.order.gap() {
            self.deriver.fall_short();
        }
        Ok(reached)
    }

    /// Nothing happens: what has happened is a state of the source.
    fn rest(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        let counters = self.programs.counters()?;
        if self.deriver.said {
            let seen = self.progress.events;
            self.drain()?;
            let still = self.progress.events == seen && self.programs.counters()? == counters;
            if still && counters.operations == 0 && self.reached(counters.next)? {
                self.close(listener)?;
            }
        }
        // What they have done by now is told by nothing else.
        if counters.operations > 0 && self.ended.max(self.passed).elapsed() >= PATIENCE {
            self.passed = Instant::now();
            self.programs.pass_waiting()?;
        }
        Ok(())
    }

    /// Whether copies have waited for long enough.
    fn is_due(&self) -> bool {
        self.deriver.said && self.bytes <= MUCH && self.ended.elapsed() >= LONG
    }

    /// Ends an epoch, unless something is in doubt.
    fn close(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        self.look_around()?;
        let certain = self.deriver.doubts.is_empty() && matches!(self.reading, Reading::Idle);
        let counters = self.programs.counters()?;
        let known = (counters.dropped, counters.forgotten) == (self.accounted, self.forgotten);
        if !certain || !known {
            return Ok(());
        }
        self.look(listener)?;
        self.deriver.let_go();
        if !self.deriver.said {
            // The last epoch has it all: what is written down of it may be what was synced.
            self.answered();
            return Ok(());
        }
        let entry = Entry::Epoch {
            number: self.epoch + 1,
        };
        if let Err(invalid) = self.deriver.tree.enter(&entry) {
            self.deriver.distrust(&invalid);
            return Ok(());
        }
        self.deriver.out.push(entry);
        self.epoch += 1;
        if let Some(pinned) = &mut self.pinned {
            let (order, lost) = (&mut self.order, self.accounted);
            pinned.epoch(self.place.mounts(), |number| order.reached(number, lost));
        }
        self.answered();
        self.deriver.said = false;
        self.deriver.adrift = None;
        self.compared();
        Ok(())
    }

    /// The last epoch has what was synced.
    fn answered(&mut self) {
        if std::mem::take(&mut self.wanted) {
            self.progress.synced = self.epoch;
        }
    }

    /// Hands on what was said, makes room in the ring, and asks whether to go on.
    fn pass_on(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        self.say(listener);
        // Nobody takes what is there until all is read.
        let portions = match self.reading {
            Reading::Now { .. } => PORTIONS,
            _ => 1,
        };
        for _ in 0..portions {
            if !self.drain()? {
                break;
            }
        }
        self.ask(listener)
    }

    fn say(&mut self, listener: &mut dyn Listener) {
        for entry in self.deriver.out.drain(..) {
            let epoch = matches!(entry, Entry::Epoch { .. });
            if let Entry::Change(Change::Data { bytes, .. }) = &entry {
                self.bytes += bytes.len();
            }
            listener.take(entry);
            if epoch {
                (self.ended, self.bytes) = (Instant::now(), 0);
            }
        }
    }
}
