//! Follows what happens to a tree, and says it in records: what was seen exactly at once, what was
//! not seen once it has been read. It decides when the records are a state that the source had.

mod boundary;
mod call_groups;
mod calls;
mod comparison;
mod derive;
mod dirty;
mod dirty_pages;
mod epochs;
mod error;
mod event;
mod events;
mod file_reader;
mod format;
mod functions;
mod hold_back;
mod listener;
mod listings;
mod mapped_files;
mod maps;
mod mmap_scan;
mod mount_watch;
mod mounts;
mod options;
mod order;
mod output;
mod overlay;
mod pace;
mod pin;
mod pipeline;
mod program;
mod progress;
mod queue;
mod readback;
mod renumber;
mod rescan;
mod shadow;
mod skel;
mod source;
mod spill;
mod waiter;
mod xattr;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use sys::bpf_ring::Gauge;

use crate::log;
use crate::patterns::Filter;
use crate::record::{self, Entry, File, Part};
use crate::tree::Tree;
use comparison::Comparison;
use epochs::Epochs;
use mmap_scan::MmapScan;
use mount_watch::MountWatch;
use pin::{Journal, Label};
use pipeline::{PORTIONS, Pipeline};
use program::{Programs, Scope};
use queue::EventQueue;
use readback::{Advance, Readback};
use shadow::ShadowTree;
use source::Source;
use waiter::Waiter;

pub use comparison::{LogState, Rescan};
pub use error::Error;
pub use functions::check as functions;
pub use listener::Listener;
pub(crate) use mounts::compresses;
pub use options::{HoldBackOptions, Options};
pub use pin::{FOLDER, Pin};
pub use progress::Progress;

/// After so much time without an event, what has happened is an epoch.
const QUIET_TIME: Duration = Duration::from_millis(20);

/// How often to poll at most: who reads events as they come disturbs their writers.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// A tree that is being followed. Dropping it leaves nothing attached.
#[derive(Debug)]
pub struct Capture {
    pipeline: Pipeline,
    mounts: MountWatch,
    readback: Readback,
    mmap_scan: MmapScan,
    journal: Option<Journal>,
    waiter: Waiter,
    options: Options,
}

impl Capture {
    /// Attaches to the tree below `root`. The first records say what the tree
    /// has already.
    ///
    /// # Errors
    /// [`Error`] says what is missing.
    pub fn start(root: &Path, options: Options) -> Result<Self, Error> {
        Self::check(root, &options)?;
        let capture = Self::attach(root, options)?;
        capture.pipeline.shadow.source.check(&capture.options)?;
        Ok(capture)
    }

    /// Whatever the file system says nothing of.
    pub(crate) fn attach(root: &Path, options: Options) -> Result<Self, Error> {
        let (mut capture, label) = Self::connect(root, options)?;
        let shadow = &mut capture.pipeline.shadow;
        shadow.begin(Entry::Start {
            root: shadow.source.name(),
        });
        shadow.identify()?;
        shadow.select(&capture.options.patterns);
        shadow.raise_root_doubts();
        capture.keep_journal(label, &[])?;
        Ok(capture)
    }

    /// Attaches to the tree below `root`, to go on with the log that says what is known. The first
    /// records say what has become of the tree since; epochs are numbered on. A log without a tree says
    /// the whole tree.
    ///
    /// # Errors
    /// As [`Self::start`], and of [`Self::check_log`].
    pub fn resume(root: &Path, options: Options, log: LogState) -> Result<Self, Error> {
        Self::check(root, &options)?;
        Self::check_log(root, &log)?;
        let (mut capture, mut label) = Self::connect(root, options)?;
        let Pipeline { shadow, epochs, .. } = &mut capture.pipeline;
        shadow.source.check(&capture.options)?;
        let file = shadow.source.name();
        let LogState {
            tree, mut contents, ..
        } = log;
        let epoch = tree.epoch();
        *epochs = Epochs::new(epoch);
        // A promoted tree has the names of the log's, and other files.
        let promoted = tree.unclaimed().is_some();
        let renumbering = match promoted {
            true => Some(renumber::find(&tree, &mut shadow.source)?),
            false => None,
        };
        let same = promoted || tree.root() == Some(file);
        // A journal says what has changed, not what has come to belong.
        let alike = *tree.patterns() == capture.options.patterns;
        shadow.tree = tree;
        if let Some(all) = renumbering {
            contents.renumber(&all);
            for entry in renumber::entries(all) {
                shadow.begin(entry);
            }
        }
        let noted = match (&capture.options.pin, &label) {
            (Some(pin), Some(label)) if same && alike && !promoted => pin.noted_files(label, epoch),
            _ => None,
        };
        if same {
            shadow.comparison = Comparison::new(contents, noted.is_some());
            if noted.is_none() {
                capture.readback.request_rescan();
            }
            shadow.take_doubts_of_log();
        } else {
            shadow.begin(Entry::Start { root: file });
        }
        shadow.identify()?;
        shadow.select(&capture.options.patterns);
        shadow.raise_root_doubts();
        if let Some(noted) = &noted {
            label = label.map(|label| label.since(epoch));
            shadow.comparison.count_files(noted.len() as u64);
            for file in noted {
                shadow.raise_file_doubts(*file);
            }
            shadow.raise_nameless_doubts();
        }
        capture.keep_journal(label, noted.as_deref().unwrap_or_default())?;
        Ok(capture)
    }

    /// Whether the tree is one that can be followed, as far as that shows before.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn check(root: &Path, options: &Options) -> Result<(), Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::Privileges);
        }
        Source::open(root)?.check(options)
    }

    /// Whether a log is of the tree below `root`, or of none yet. What is at that path now may be another tree: an empty
    /// mount point, for instance.
    ///
    /// # Errors
    /// [`Error::OtherTree`] says what differs; [`Error::Tree`], [`Error::FileSystem`].
    pub fn check_log(root: &Path, log: &LogState) -> Result<(), Error> {
        let source = Source::open(root)?;
        log.check(source.name(), &source.identity()?, root)
    }

    /// Whether the tree below `root` may replace what a log has: not after another one was promoted.
    ///
    /// # Errors
    /// As [`Self::check_log`], and [`Error::Promoted`].
    pub(crate) fn check_term(root: &Path, log: &Path) -> Result<(), Error> {
        let terms = log::terms(log)?;
        let Some(last) = terms.last() else {
            return Ok(());
        };
        let source = Source::open(root)?;
        comparison::check_term(
            &last.term,
            (source.name(), &source.identity()?),
            (log, root),
        )
    }

    /// Which tree is below `root`: what its root is called, and where it is.
    ///
    /// # Errors
    /// [`Error::Tree`], [`Error::FileSystem`]
    pub(crate) fn identify(root: &Path) -> Result<(File, record::Source), Error> {
        let source = Source::open(root)?;
        Ok((source.name(), source.identity()?))
    }

    /// Where other file systems are mounted below a tree: they are no part of it.
    ///
    /// # Errors
    /// When the kernel's list cannot be read.
    pub fn mounted_below(root: &Path) -> io::Result<Vec<PathBuf>> {
        mounts::below(root)
    }

    /// Attached, and the label of a journal if there is to be one.
    fn connect(root: &Path, options: Options) -> Result<(Self, Option<Label>), Error> {
        let filter = Filter::new(&options.patterns)?;
        let mut source = Source::open(root)?;
        let failed = |cause| Error::Tree {
            path: root.to_owned(),
            cause,
        };
        let device = mounts::device(source.root()).map_err(failed)?;
        let device = device.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let scope = Scope {
            device,
            root: source.name(),
            format: source.format(),
        };
        let mounts = MountWatch::new(root).map_err(failed)?;
        let programs = Programs::attach(&scope, &options)?;
        source.attach(&programs)?;
        let pin = options.pin.as_ref();
        let label = pin.map(|pin| Label::new(pin, root, &source, &scope, mounts.hash()));
        let label = label.transpose()?;
        // A page that is dirty already would tell nothing of further stores.
        nix::unistd::syncfs(source.root()).map_err(|errno: Errno| failed(errno.into()))?;
        let mmap_scan = MmapScan::new(options.look && source.format().silent());
        let shadow = ShadowTree::new(source, filter, &options.hold_back);
        let capture = Self {
            pipeline: Pipeline::new(EventQueue::new(programs), shadow, Epochs::new(0)),
            mounts,
            readback: Readback::new(&options),
            mmap_scan,
            journal: None,
            waiter: Waiter::default(),
            options,
        };
        Ok((capture, label))
    }

    /// Keeps a journal for the next capture, if there is to be one.
    fn keep_journal(&mut self, label: Option<Label>, noted: &[File]) -> Result<(), Error> {
        if let Some((pin, label)) = self.options.pin.as_ref().zip(label) {
            let programs = self.pipeline.queue.programs_mut();
            self.journal = Some(pin.keep(programs, label, noted)?);
        }
        Ok(())
    }

    /// Says what has happened since the last call. Does not wait: call it every few milliseconds.
    ///
    /// # Errors
    /// [`Error`] when the source cannot be read, or the listener breaks off; the capture is over then.
    pub fn poll(&mut self, listener: &mut impl Listener) -> Result<Progress, Error> {
        let listener: &mut dyn Listener = listener;
        self.check_mounts()?;
        self.follow(listener)?;
        loop {
            match self.readback.advance(&mut self.pipeline, listener)? {
                Advance::Waits => break,
                Advance::GoesOn => self.follow(listener)?,
                Advance::Ends { quiet } => {
                    // What has been read may be in doubt again with the next event.
                    if quiet && self.pipeline.is_wanted() {
                        self.close(listener)?;
                    }
                    self.pipeline.pass_on(listener)?;
                    break;
                }
            }
        }
        self.mmap_scan.run_if_due(&mut self.pipeline, listener)?;
        // What was to be read at a barrier has been read by now.
        let pipeline = &self.pipeline;
        let barrier = pipeline.epochs.has_barrier();
        if barrier || pipeline.is_due() || pipeline.queue.idle_for() >= QUIET_TIME {
            self.rest(listener)?;
        }
        self.pipeline.pass_on(listener)?;
        if let Some(journal) = &mut self.journal {
            journal.step(self.pipeline.queue.programs())?;
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
        let programs = self.pipeline.queue.programs();
        if programs.counters()?.operations > 0 {
            // What calls have done that go on has happened, too.
            programs.pass_waiting()?;
        }
        let target = programs.counters()?.next;
        let begun = Instant::now();
        self.poll(listener)?;
        self.mmap_scan.run(&mut self.pipeline, listener)?;
        let last = self.pipeline.epochs.last();
        loop {
            self.poll(listener)?;
            // What is reached by giving something up may be in doubt then.
            if self.pipeline.has_told(target, last)? {
                return Ok(true);
            }
            if begun.elapsed() > limit {
                return Ok(false);
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Waits until there is something to poll for: a program has synced, much waits, or an epoch is due; not longer
    /// than `at_most`, nor when `also` is readable. Whether what was waited for is a reason to poll at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn wait(&mut self, at_most: Duration, also: Option<BorrowedFd<'_>>) -> Result<bool, Error> {
        let pause = self.pause().min(at_most);
        let programs = self.pipeline.queue.programs_mut();
        self.waiter.wait(programs, pause, also)
    }

    /// Says that all that was handed on is in the log and on the disk, with this as the log's last epoch.
    ///
    /// # Errors
    /// [`Error::Bpf`]
    pub fn recorded(&mut self, epoch: u64) -> Result<(), Error> {
        let journal = self.journal.as_mut();
        journal.map_or(Ok(()), |journal| journal.recorded(epoch))
    }

    /// Puts these parts of a file in doubt, and which names there are where it is: they are read, and said as the
    /// source has them. The path is below the root; a file that was not said has no parts yet, and is all read.
    pub fn suspect(&mut self, path: &Path, parts: &[Part]) {
        self.pipeline.shadow.suspect(path, parts);
    }

    /// How far the capture is.
    pub fn progress(&self) -> Progress {
        self.pipeline.progress()
    }

    /// The tree as it has been said.
    pub fn tree(&self) -> &Tree {
        &self.pipeline.shadow.tree
    }

    /// How much room its events have left, for who looks while it is at work.
    pub fn gauge(&self) -> Gauge {
        self.pipeline.queue.programs().gauge()
    }

    /// How many bytes are held back, for who looks while it is at work.
    pub fn held_back(&self) -> Arc<AtomicU64> {
        self.pipeline.shadow.hold_back.gauge()
    }

    /// Where the kernel showed what has happened since the last call.
    pub(crate) fn take_hooks(&mut self) -> Vec<&'static str> {
        self.pipeline.queue.take_hooks()
    }

    /// What kind of file system the tree is on.
    pub(crate) fn file_system(&self) -> &'static str {
        self.pipeline.shadow.source.format().name()
    }

    /// Whether what a write has put there is copied where it is put.
    pub(crate) fn copies(&self) -> bool {
        let functions = self.pipeline.queue.programs().functions();
        self.pipeline.shadow.source.format().exact() || functions.write.is_some()
    }

    /// Reads again what a mount hides or shows, of which no file system tells.
    ///
    /// # Errors
    /// [`Error::Moved`] where the tree is not at its path any more.
    fn check_mounts(&mut self) -> Result<(), Error> {
        let shadow = &mut self.pipeline.shadow;
        if let Some(changed) = self.mounts.changes(shadow.source.root())? {
            // What came and went since says nothing, but for what it has hidden.
            let mut above: BTreeSet<File> = shadow.source.hidden().collect();
            let places = changed.iter().filter_map(|at| at.parent());
            above.extend(places.filter_map(|above| shadow.at(above)));
            for directory in above {
                if shadow.tree.get(directory).is_some() {
                    shadow.raise_doubt(directory, Part::Names);
                }
            }
            if let Some(journal) = self.journal.as_mut().filter(|_| !changed.is_empty()) {
                journal.distrust()?;
            }
        }
        let root = self.pipeline.shadow.source.root();
        self.mounts.check_root_if_due(root)
    }

    /// Derives what follows from the events that are there, and says it: not for ever, where they come
    /// faster than they are written down.
    fn follow(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        for _ in 0..PORTIONS {
            let more = self.pipeline.drain()?;
            self.derive(listener)?;
            self.pipeline.hand_over(listener)?;
            if !more {
                break;
            }
        }
        let dropped = self.pipeline.account()?;
        while self.pipeline.skip_lost(dropped) {
            self.derive(listener)?;
        }
        self.pipeline.pass_on(listener)
    }

    /// Derives what follows from events that are due.
    fn derive(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        while let Some(ends) = self.pipeline.derive_next()? {
            if ends {
                self.close(listener)?;
            }
        }
        Ok(())
    }

    /// Nothing happens: what has happened is a state of the source.
    fn rest(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        let counters = self.pipeline.queue.counters()?;
        if self.pipeline.shadow.said && self.pipeline.is_still(&counters)? {
            self.close(listener)?;
        }
        // What they have done by now is told by nothing else.
        if counters.operations > 0 && self.pipeline.epochs.passes_calls() {
            self.pipeline.queue.programs().pass_waiting()?;
        }
        Ok(())
    }

    /// Ends an epoch, unless something is in doubt; of files that change all the time it waits only for a while. No
    /// operation may be under way.
    fn close(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        self.check_mounts()?;
        let Some(stale) = self.pipeline.stale()? else {
            return Ok(());
        };
        self.mmap_scan.run(&mut self.pipeline, listener)?;
        if self.pipeline.end_epoch(&stale)
            && stale.is_empty()
            && let Some(journal) = &mut self.journal
        {
            let queue = &mut self.pipeline.queue;
            journal.epoch(self.mounts.hash(), |number| queue.covers(number));
        }
        Ok(())
    }

    /// For how long a poll would do nothing that has to be done, if nobody syncs: until the next epoch is due.
    fn pause(&self) -> Duration {
        let Pipeline { shadow, epochs, .. } = &self.pipeline;
        let certain = shadow.doubts.is_empty();
        let read = self.readback.is_idle() && (certain || !self.readback.is_ripe(&self.pipeline));
        if epochs.has_barrier() || epochs.last() == 0 || !read {
            return INTERVAL;
        }
        // Nor does any epoch end before all is certain, or it is overdue.
        if !certain {
            return self.readback.until_ripe(&self.pipeline).max(INTERVAL);
        }
        epochs.until_due(shadow.said).max(INTERVAL)
    }
}
