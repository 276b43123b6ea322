//! Captures the changes of a tree into a log.

mod log_output;
mod open;

use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;

use super::acknowledgements::Acknowledgements;
use super::check::{self, Check, CheckReport};
use super::freezer::{Backlog, Bound, CgroupGuard, Freezer, Pressure};
use super::{Error, keep, place};
use crate::capture::{self, Capture, HoldBackOptions, INTERVAL, LogState, Options, Pin, Progress};
use crate::patterns::Patterns;
use crate::tree::Stale;
use crate::verify::{Scope, SyncPoint};
use crate::{coverage, log};
use log_output::LogOutput;
pub use log_output::Meanwhile;
pub(super) use log_output::now_ns;
use open::OpenFiles;
pub use open::{Open, OpenPart};

/// How long the end waits for an epoch with everything that has happened.
const LAST: Duration = Duration::from_secs(30);
/// The smallest ring, in bytes. An event of the largest size has to fit.
const MIN_RING: u32 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub tree: PathBuf,
    /// Created if there is none. An existing log is continued.
    pub log: PathBuf,
    /// Copies the whole tree into an existing log instead of comparing it with the log. The log may
    /// be of another tree.
    pub fresh: bool,
    /// As [`Options::journal`].
    pub journal: bool,
    /// Operations that may be missed where the file system does not report them.
    pub allow: Vec<Unseen>,
    /// The length of a round of the check beside it. `None` for no check.
    pub check: Option<Duration>,
    /// The names of the tree that the log contains.
    pub patterns: Patterns,
    /// As [`Options::ring_bytes`].
    pub ring_bytes: u32,
    /// Keeps a journal that outlives the capture in this folder of a BPF file system.
    pub pin: Option<PathBuf>,
    /// How far the capture may be behind. Without this, events that do not fit into the ring are
    /// counted and their files are read back.
    pub bounded: Option<Bound>,
    /// As [`Options::rate_limit`].
    pub rate_limit: Option<NonZeroU64>,
    /// The approximate size limit of the log in bytes. Beyond it, the oldest part is folded.
    /// Without this, the log grows without limit.
    pub keep: Option<u64>,
}

/// Operations that a file system may not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unseen {
    /// Stores through shared mappings.
    Mmap,
}

impl Unseen {
    /// The name of the operation that tests for it.
    fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
        }
    }
}

/// The progress of a capture and its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureProgress {
    /// The progress, with the epoch as the log numbers it.
    pub progress: Progress,
    /// The log's last record.
    pub number: u64,
    /// Whether the log has the tree by now.
    pub ready: bool,
    /// The number of records after the last epoch, and how long there have been any.
    pub lag_records: u64,
    pub lag: Duration,
    /// The results of the check beside it.
    pub checked: Option<CheckReport>,
    /// The back-pressure, if the capture is bounded.
    pub pressure: Option<Pressure>,
    /// The parts of the tree that are in doubt. They are not listed while many are read at once.
    pub open: Open,
    /// Files that the last epoch has in an earlier state.
    pub stale: Stale,
}

impl Settings {
    /// Checks whether the capture can begin, as far as that takes no time.
    ///
    /// # Errors
    /// [`Error::Input`] for a log within its own tree, [`Error::Capture`].
    pub fn check(&self) -> Result<(), Error> {
        let (log, tree) = (self.log.display(), self.tree.display());
        let there = self.tree.canonicalize();
        let there = there.map_err(|cause| capture::Error::Tree {
            path: self.tree.clone(),
            cause,
        })?;
        if place(&self.log).starts_with(there) {
            let what = format!("{log} is in {tree}: writing the log would be a change of the tree");
            return Err(Error::Input(what));
        }
        log::check_new(&self.log)?;
        self.agree()?;
        match Capture::check(&self.tree, &self.options([0; 16])) {
            // The directory may be a mount point whose file system is not mounted yet.
            Err(error @ capture::Error::Silent { .. }) => {
                self.read_log()?;
                Err(error.into())
            }
            checked => Ok(checked?),
        }
    }

    /// Checks that the settings are compatible, that the ring can have its size, and that the
    /// cgroup can be frozen.
    ///
    /// # Errors
    /// [`Error::Input`], [`Error::Freezer`]
    pub(super) fn agree(&self) -> Result<(), Error> {
        check::Settings::check(self.check)?;
        keep::check(self.keep)?;
        let patterns = self.patterns.check();
        patterns.map_err(|wrong| Error::Input(wrong.to_string()))?;
        if self.pin.is_some() && !self.allow.is_empty() {
            let what = "pin: not with allow: a journal notes nothing of what is looked for";
            return Err(Error::Input(what.to_owned()));
        }
        if self.check.is_some() && !self.allow.is_empty() {
            let what = "check: not with allow: what is looked for may differ without being wrong";
            return Err(Error::Input(what.to_owned()));
        }
        let ring = self.ring_bytes;
        if !ring.is_power_of_two() || ring < MIN_RING {
            let least = MIN_RING >> 10;
            let what = format!("ring {ring} B: a power of two, {least} KiB at least");
            return Err(Error::Input(what));
        }
        self.bounded.as_ref().map_or(Ok(()), Bound::check)
    }

    /// Reads the log to be continued. `None` if there is none yet, or it starts anew.
    ///
    /// # Errors
    /// [`Error::Log`], and [`Error::Capture`] if it is of another tree. Nothing has been written to
    /// either then.
    fn read_log(&self) -> Result<Option<LogState>, Error> {
        if !self.log.is_dir() {
            return Ok(None);
        }
        if self.fresh {
            Capture::check_term(&self.tree, &self.log)?;
            return Ok(None);
        }
        let log = LogState::read(&self.log)?;
        Capture::check_log(&self.tree, &log)?;
        Ok(Some(log))
    }

    /// The options for a log with this id.
    fn options(&self, id: [u8; 16]) -> Options {
        let log = self.log.clone();
        let pin = |folder| Pin { folder, log, id };
        Options {
            pin: self.pin.clone().map(pin),
            journal: self.journal,
            look: self.allow.contains(&Unseen::Mmap),
            patterns: self.patterns.clone(),
            ring_bytes: self.ring_bytes,
            rate_limit: self.rate_limit,
            hold_back: HoldBackOptions {
                folder: Some(self.log.clone()),
                ..HoldBackOptions::default()
            },
        }
    }

    fn checks(&self) -> Option<check::Settings> {
        Some(check::Settings {
            tree: self.tree.clone(),
            log: self.log.clone(),
            scope: Scope {
                owners: true,
                privileged: true,
            },
            source: true,
            round: self.check?,
        })
    }

    /// Warns about mounts below the tree, which are not followed.
    fn warn(&self) -> Result<(), Error> {
        let listed = Capture::mounted_below(&self.tree);
        let listed = listed.map_err(|cause| capture::Error::Io {
            action: "what is mounted",
            cause,
        })?;
        for place in listed {
            let place = place.display();
            tracing::warn!(
                "{place} is another file system, and no part of the tree: it is left out"
            );
        }
        Ok(())
    }

    /// Tests whether all operations of programs are seen on this file system.
    fn seen(&self) -> Result<(), Error> {
        let seen = match coverage::quick(&self.tree) {
            Ok(seen) => seen,
            Err(coverage::Error::Place { path, cause }) => {
                let place = path.display();
                tracing::warn!("what is seen here cannot be tried: {place}: {cause}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if seen.copies == Some(false) {
            tracing::warn!("the page cache cannot be copied here: what is written is read back");
        }
        let allowed = |operation: &&str| self.allow.iter().any(|allow| allow.name() == *operation);
        let refused: Vec<_> = seen
            .invisible
            .into_iter()
            .filter(|name| !allowed(name))
            .collect();
        match refused.is_empty() {
            true => Ok(()),
            false => Err(Error::Invisible(refused)),
        }
    }
}

impl CaptureProgress {
    /// A sync point, if the log has everything that had happened when the step began.
    fn caught(&self, at: SystemTime) -> Option<SyncPoint> {
        let none = self.lag_records == 0 && self.progress.waiting == 0;
        let known = self.progress.doubtful == 0 && self.progress.held.is_none();
        let all = self.ready && none && known && self.progress.stale == 0;
        let epoch = self.progress.epoch;
        all.then_some(SyncPoint { epoch, at })
    }
}

/// A tree that is being captured into its log.
#[derive(Debug)]
pub struct Recorder {
    /// Ends first, so that events that wait after the capture has stopped reading the ring do not
    /// freeze the application.
    freezer: Option<Freezer>,
    capture: Capture,
    written: LogOutput,
    check: Option<Check>,
    confirmed: Option<Arc<Acknowledgements>>,
    watched: OpenFiles,
}

impl Recorder {
    /// Continues the log, or starts it. The calling thread must be the one that writes the log.
    /// From now on it does not preempt other threads (`SCHED_BATCH`).
    ///
    /// # Errors
    /// [`Error::Input`], [`Error::Capture`], [`Error::Coverage`], [`Error::Invisible`],
    /// [`Error::Log`]. If it is bounded, also [`Error::Freezer`], [`Error::Watchdog`],
    /// [`Error::Thread`].
    pub fn begin(settings: &Settings) -> Result<Self, Error> {
        Self::shipped(settings, None)
    }

    /// As [`Self::begin`], with the replicas of the log, whose lag is bounded as well.
    pub(super) fn shipped(
        settings: &Settings,
        confirmed: Option<Arc<Acknowledgements>>,
    ) -> Result<Self, Error> {
        // The quick checks come first, because they find the most frequent errors.
        settings.check()?;
        let log = settings.read_log()?;
        settings.warn()?;
        settings.seen()?;
        let bounded = settings.bounded.as_ref();
        let held = bounded
            .map(|bounded| CgroupGuard::take(&bounded.cgroup))
            .transpose()?;
        let check = settings.checks().map(Check::begin).transpose()?;
        let (capture, written) = Self::open(settings, log)?;
        if let Some(confirmed) = &confirmed {
            confirmed.wrote(written.writer.number(), 0, false);
        }
        let freezer = bounded.zip(held).map(|(bounded, held)| {
            let backlog = Backlog {
                ring: capture.gauge(),
                held_back: capture.held_back(),
                confirmed: confirmed.clone(),
            };
            Freezer::start(bounded, held, backlog)
        });
        let freezer = freezer.transpose()?;
        // The application's writes wake this thread, which may wait until the application has done
        // its work. If the call is not permitted, the capture only costs more.
        let _ = sys::sched::batch();
        Ok(Self {
            freezer,
            capture,
            written,
            check,
            confirmed,
            watched: OpenFiles::default(),
        })
    }

    fn open(settings: &Settings, log: Option<LogState>) -> Result<(Capture, LogOutput), Error> {
        let mut written = LogOutput::open(settings)?;
        let options = settings.options(written.writer.id());
        // Another writer may have appended to the log since it was read.
        let log = log.filter(|log| log.number() == written.writer.number());
        let capture = if settings.fresh {
            written.numbered_from = written.before;
            Capture::start(&settings.tree, options)?
        } else {
            let log = log.map_or_else(|| LogState::read(&settings.log), Ok)?;
            Capture::resume(&settings.tree, options, log)?
        };
        LogOutput::unpin(settings)?;
        Ok((capture, written))
    }

    /// Waits until there is something to write, at most as long as an epoch takes. Returns early
    /// when `also` becomes readable.
    ///
    /// # Errors
    /// [`Error::Capture`]
    pub fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        // A full ring freezes the application, so it must be read more often.
        let most = self.freezer.as_ref().map_or(Duration::MAX, |_| INTERVAL);
        Ok(self.capture.wait(most, also).map(drop)?)
    }

    /// Writes what has happened since the last call. Does not wait: see [`Self::wait`]. It may read
    /// for long, the first time a whole tree. `meanwhile` receives the progress and can abort a
    /// first copy.
    ///
    /// # Errors
    /// [`Error::Capture`] or [`Error::Log`]. The capture has then ended.
    pub fn step(&mut self, meanwhile: &mut Meanwhile<'_>) -> Result<CaptureProgress, Error> {
        let (began, capture) = (SystemTime::now(), &mut self.capture);
        let (freezer, check) = (self.freezer.as_ref(), self.check.as_ref());
        let progress = self.written.follow(
            &mut |captured| {
                meanwhile(&CaptureProgress {
                    checked: check.map(|check| check.tell(None)),
                    pressure: freezer.and_then(|freezer| freezer.pressure().ok()),
                    ..captured.clone()
                })
            },
            |listener| capture.poll(listener),
        )?;
        self.written.keep(progress)?;
        capture.recorded(self.written.writer.epoch())?;
        let mut captured = self.reached(progress)?;
        if let Some(check) = &self.check {
            captured.checked = Some(check.tell(captured.caught(began)));
            check.mend(&mut self.capture);
        }
        Ok(captured)
    }

    fn reached(&mut self, progress: Progress) -> Result<CaptureProgress, Error> {
        let mut captured = self.written.reached(progress);
        if let Some(confirmed) = &self.confirmed {
            let bytes = self.written.writer.appended();
            confirmed.wrote(captured.number, bytes, captured.ready);
        }
        let pressure = self.freezer.as_ref().map(Freezer::pressure);
        captured.pressure = pressure.transpose()?;
        captured.open = self.watched.look(self.capture.tree());
        captured.stale = Stale::of(self.capture.tree());
        Ok(captured)
    }

    /// Writes what has happened until now, with an epoch that contains it. Returns false if no
    /// epoch contained it in time.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn finish(mut self) -> Result<(CaptureProgress, bool), Error> {
        let (capture, began) = (&mut self.capture, Instant::now());
        let whole = self.written.follow(
            &mut |captured| captured.ready || began.elapsed() > LAST,
            |listener| capture.catch_up(LAST, listener),
        )?;
        let mut captured = self.reached(self.capture.progress())?;
        if let Some(check) = &self.check {
            captured.checked = Some(check.tell(None));
        }
        drop(self.freezer);
        drop(self.capture);
        self.written.writer.sync()?;
        Ok((captured, whole))
    }
}

/// The error that no epoch contained the last changes in time.
pub fn unfinished(captured: &CaptureProgress) -> Error {
    let (seconds, epoch) = (LAST.as_secs(), captured.progress.epoch);
    Error::Unfinished(format!(
        "no epoch has the last changes after {seconds} s: the log ends with epoch {epoch}"
    ))
}
