//! Follows the changes of a tree and writes them as records. Changes that the kernel reports
//! exactly are recorded at once; the others are recorded after the files have been read back. This
//! module decides when the records add up to a state that the source had: an epoch.

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

/// The capture ends an epoch after this much time without an event.
const QUIET_TIME: Duration = Duration::from_millis(20);

/// The shortest interval between polls. Reading every event as it arrives would slow down the
/// programs that write.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// A tree that is being followed. Dropping it detaches all BPF programs.
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
    /// Attaches to the tree below `root`. The first records describe what the tree already
    /// contains.
    ///
    /// # Errors
    /// [`Error`] names the missing requirement.
    pub fn start(root: &Path, options: Options) -> Result<Self, Error> {
        Self::check(root, &options)?;
        let capture = Self::attach(root, options)?;
        capture.pipeline.shadow.source.check(&capture.options)?;
        Ok(capture)
    }

    /// As [`Self::start`], without asking whether the file system reports all changes.
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

    /// Attaches to the tree below `root` and continues its log. The first records contain what has
    /// changed in the tree since the log's last record, and the epoch numbers continue. If the log
    /// has no tree yet, the whole tree is recorded.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Self::check_log`].
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
        // A promoted tree has the names that the log has, but other inodes.
        let promoted = tree.unclaimed().is_some();
        let renumbering = match promoted {
            true => Some(renumber::find(&tree, &mut shadow.source)?),
            false => None,
        };
        let same = promoted || tree.root() == Some(file);
        // The journal records which files changed. It does not know which files the new patterns
        // include.
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

    /// Checks whether the tree can be followed, as far as this can be known before attaching.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn check(root: &Path, options: &Options) -> Result<(), Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::Privileges);
        }
        Source::open(root)?.check(options)
    }

    /// Checks that a log belongs to the tree below `root`, or is empty. Another tree may now be at
    /// that path, for instance an empty mount point.
    ///
    /// # Errors
    /// [`Error::OtherTree`] describes the difference; [`Error::Tree`], [`Error::FileSystem`].
    pub fn check_log(root: &Path, log: &LogState) -> Result<(), Error> {
        let source = Source::open(root)?;
        log.check(source.name(), &source.identity()?, root)
    }

    /// Checks that the tree below `root` may replace the contents of a log. It may not after
    /// another tree was promoted.
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

    /// Identifies the tree below `root`: the inode of its root, and the file system that it is on.
    ///
    /// # Errors
    /// [`Error::Tree`], [`Error::FileSystem`]
    pub(crate) fn identify(root: &Path) -> Result<(File, record::Source), Error> {
        let source = Source::open(root)?;
        Ok((source.name(), source.identity()?))
    }

    /// Returns the mount points of other file systems below a tree. They are not part of the tree.
    ///
    /// # Errors
    /// Fails if the kernel's list of mounts cannot be read.
    pub fn mounted_below(root: &Path) -> io::Result<Vec<PathBuf>> {
        mounts::below(root)
    }

    /// Attaches, and returns the label of the journal if one is to be kept.
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
        // A store to a page that is already dirty would not be reported.
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

    /// Starts the journal for the next capture if the options ask for one.
    fn keep_journal(&mut self, label: Option<Label>, noted: &[File]) -> Result<(), Error> {
        if let Some((pin, label)) = self.options.pin.as_ref().zip(label) {
            let programs = self.pipeline.queue.programs_mut();
            self.journal = Some(pin.keep(programs, label, noted)?);
        }
        Ok(())
    }

    /// Records what has happened since the last call. It does not wait: call it every few
    /// milliseconds.
    ///
    /// # Errors
    /// [`Error`] if the source cannot be read or the listener breaks off. The capture has then
    /// ended.
    pub fn poll(&mut self, listener: &mut impl Listener) -> Result<Progress, Error> {
        let listener: &mut dyn Listener = listener;
        self.check_mounts()?;
        self.follow(listener)?;
        loop {
            match self.readback.advance(&mut self.pipeline, listener)? {
                Advance::Waits => break,
                Advance::GoesOn => self.follow(listener)?,
                Advance::Ends { quiet } => {
                    // The next event may put what has just been read in doubt again.
                    if quiet && self.pipeline.is_wanted() {
                        self.close(listener)?;
                    }
                    self.pipeline.pass_on(listener)?;
                    break;
                }
            }
        }
        self.mmap_scan.run_if_due(&mut self.pipeline, listener)?;
        // Everything that had to be read for a barrier has been read by now.
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

    /// Polls until an epoch contains everything that happened before the call. Returns false if
    /// this takes longer than `limit`.
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
            // Calls that are still running have already changed files, and that counts too.
            programs.pass_waiting()?;
        }
        let target = programs.counters()?.next;
        let begun = Instant::now();
        self.poll(listener)?;
        self.mmap_scan.run(&mut self.pipeline, listener)?;
        let last = self.pipeline.epochs.last();
        loop {
            self.poll(listener)?;
            // Giving something up to reach the target may have put it in doubt.
            if self.pipeline.has_told(target, last)? {
                return Ok(true);
            }
            if begun.elapsed() > limit {
                return Ok(false);
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Waits until there is a reason to poll: a program has synced, many events are queued, or an
    /// epoch is due. Waits no longer than `at_most`, and returns early when `also` becomes
    /// readable. Returns whether to poll at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn wait(&mut self, at_most: Duration, also: Option<BorrowedFd<'_>>) -> Result<bool, Error> {
        let pause = self.pause().min(at_most);
        let programs = self.pipeline.queue.programs_mut();
        self.waiter.wait(programs, pause, also)
    }

    /// Confirms that everything handed on so far is in the log and on the disk, and that `epoch` is
    /// the log's last epoch.
    ///
    /// # Errors
    /// [`Error::Bpf`]
    pub fn recorded(&mut self, epoch: u64) -> Result<(), Error> {
        let journal = self.journal.as_mut();
        journal.map_or(Ok(()), |journal| journal.recorded(epoch))
    }

    /// Puts these parts of a file, and the names in its directory, in doubt: they are read back and
    /// recorded as the source has them. The path is relative to the root. A file that is not in the
    /// log yet has no parts, and is read completely.
    pub fn suspect(&mut self, path: &Path, parts: &[Part]) {
        self.pipeline.shadow.suspect(path, parts);
    }

    /// The progress of the capture.
    pub fn progress(&self) -> Progress {
        self.pipeline.progress()
    }

    /// The tree as recorded so far.
    pub fn tree(&self) -> &Tree {
        &self.pipeline.shadow.tree
    }

    /// The free space in the event ring, readable while the capture runs.
    pub fn gauge(&self) -> Gauge {
        self.pipeline.queue.programs().gauge()
    }

    /// The number of bytes held back, readable while the capture runs.
    pub fn held_back(&self) -> Arc<AtomicU64> {
        self.pipeline.shadow.hold_back.gauge()
    }

    /// The kernel hooks that reported events since the last call.
    pub(crate) fn take_hooks(&mut self) -> Vec<&'static str> {
        self.pipeline.queue.take_hooks()
    }

    /// The type of the tree's file system.
    pub(crate) fn file_system(&self) -> &'static str {
        self.pipeline.shadow.source.format().name()
    }

    /// Whether written bytes are copied at the moment of the write.
    pub(crate) fn copies(&self) -> bool {
        let functions = self.pipeline.queue.programs().functions();
        self.pipeline.shadow.source.format().exact() || functions.write.is_some()
    }

    /// Reads again the directories in which a mount hides or reveals files. File systems do not
    /// report mounts.
    ///
    /// # Errors
    /// [`Error::Moved`] if the tree is no longer at its path.
    fn check_mounts(&mut self) -> Result<(), Error> {
        let shadow = &mut self.pipeline.shadow;
        if let Some(changed) = self.mounts.changes(shadow.source.root())? {
            // A mount that came and went in between leaves no trace but the names it has hidden.
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

    /// Derives changes from the queued events and records them. The number of rounds is bounded,
    /// because events may arrive faster than they are written to the log.
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

    /// Derives changes from the events that are due.
    fn derive(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        while let Some(ends) = self.pipeline.derive_next()? {
            if ends {
                self.close(listener)?;
            }
        }
        Ok(())
    }

    /// Handles a quiet moment: the recorded changes are then a state of the source.
    fn rest(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        let counters = self.pipeline.queue.counters()?;
        if self.pipeline.shadow.said && self.pipeline.is_still(&counters)? {
            self.close(listener)?;
        }
        // What the running calls have done so far is reported in no other way.
        if counters.operations > 0 && self.pipeline.epochs.passes_calls() {
            self.pipeline.queue.programs().pass_waiting()?;
        }
        Ok(())
    }

    /// Ends an epoch, unless something is in doubt. It waits only for a limited time for files that
    /// change all the time. No operation may be under way.
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

    /// How long a poll would have nothing to do if no program syncs: until the next epoch is due.
    fn pause(&self) -> Duration {
        let Pipeline { shadow, epochs, .. } = &self.pipeline;
        let certain = shadow.doubts.is_empty();
        let read = self.readback.is_idle() && (certain || !self.readback.is_ripe(&self.pipeline));
        if epochs.has_barrier() || epochs.last() == 0 || !read {
            return INTERVAL;
        }
        // No epoch ends before all doubts are settled, or it is overdue.
        if !certain {
            return self.readback.until_ripe(&self.pipeline).max(INTERVAL);
        }
        epochs.until_due(shadow.said).max(INTERVAL)
    }
}
