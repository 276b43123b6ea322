//! A slow check beside a capture or a replica: round after round, it compares all names of the tree
//! with the log. Differences in names that have stopped changing are reported and counted, and a
//! capture reads them again.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Error, STEP};
use crate::capture::Capture;
use crate::record::Part;
use crate::verify::{
    self, Difference, Differing, Progress, Rolling, RoundReport, Scope, SyncPoint, What,
};

/// The shortest round.
const MIN_ROUND: Duration = Duration::from_secs(1);
/// The most pieces of a round, and the smallest piece in bytes.
const PIECES: u64 = 64;
const MIN_RATE: u64 = 4 << 20;
/// The highest rate at which a piece is read, in bytes per second, unless the round needs a higher
/// one.
const RATE: u64 = 8 << 20;
/// How long to wait after an error before starting again.
const ANEW: Duration = Duration::from_secs(30);

/// What is compared, and how.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) tree: PathBuf,
    pub(super) log: PathBuf,
    pub(super) scope: Scope,
    /// If true, the tree is correct and the log has to agree with it. Otherwise the log is correct.
    pub(super) source: bool,
    pub(super) round: Duration,
}

/// The results of a check since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// How many times the whole tree was examined.
    pub rounds: u64,
    pub names: u64,
    /// Bytes read from the tree.
    pub bytes: u64,
    /// Names that differed from the log after they had stopped changing.
    pub differences: u64,
    /// Those of them that agree with the log by now.
    pub mended: u64,
    /// Names that did not stop changing while they were examined.
    pub undecided: u64,
}

/// A running check. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Check {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    end: AtomicBool,
    told: Mutex<SharedState>,
}

/// The state shared by the two threads.
#[derive(Debug, Default)]
struct SharedState {
    caught: Option<SyncPoint>,
    /// Differences in a source, to be read again.
    suspects: Vec<Differing>,
    checked: CheckReport,
}

/// The state of the checking thread.
#[derive(Debug)]
struct Checking {
    shared: Arc<Shared>,
    settings: Settings,
}

impl Settings {
    /// # Errors
    /// [`Error::Input`] for a round that is too short.
    pub(super) fn check(round: Option<Duration>) -> Result<(), Error> {
        match round {
            Some(round) if round < MIN_ROUND => {
                Err(Error::Input("check: a round takes 1s at least".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

impl Check {
    /// Starts the check. It examines the tree once it is told that the tree and the log agree.
    ///
    /// # Errors
    /// [`Error::Thread`]
    pub(super) fn begin(settings: Settings) -> Result<Self, Error> {
        let shared = Arc::<Shared>::default();
        let checking = Checking {
            shared: Arc::clone(&shared),
            settings,
        };
        let thread = thread::Builder::new().name("check".to_owned());
        let thread = thread.spawn(move || checking.work());
        Ok(Self {
            shared,
            thread: Some(thread.map_err(Error::Thread)?),
        })
    }

    /// Reports a moment, if this is one, at which the log contained everything in the tree.
    pub(super) fn tell(&self, caught: Option<SyncPoint>) -> CheckReport {
        let mut told = self.shared.state();
        told.caught = caught.or(told.caught);
        told.checked
    }

    /// Makes the capture read again what differs.
    pub(super) fn mend(&self, capture: &mut Capture) {
        let suspects = std::mem::take(&mut self.shared.state().suspects);
        for one in suspects {
            capture.suspect(&one.path, &parts(&one.all));
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, SharedState> {
        // The state is consistent between any two statements, so a poisoned lock is usable.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Waits. Returns false if the check is to end before.
    fn wait(&self, until: Instant) -> bool {
        while !self.ended() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(STEP));
        }
        false
    }
}

impl Checking {
    /// Runs until the check is to end. An error makes it start anew; the most frequent cause is a
    /// compaction of the log meanwhile.
    fn work(&self) {
        let mut said = String::new();
        loop {
            let Err(error) = self.rounds() else {
                return;
            };
            let text = error.to_string();
            if text != said {
                let tree = self.settings.tree.display();
                tracing::warn!("checking {tree}: {text}; it begins anew");
                said = text;
            }
            if !self.shared.wait(Instant::now() + ANEW) {
                return;
            }
        }
    }

    fn rounds(&self) -> Result<(), verify::Error> {
        let Some(mut caught) = self.caught() else {
            return Ok(());
        };
        let asked = &self.settings;
        let mut rolling = Rolling::open(&asked.log, &asked.tree, asked.scope, asked.source)?;
        loop {
            if !rolling.follow(caught.epoch, &mut |_| self.go_on())? {
                return Ok(());
            }
            if !self.one(&mut rolling)? {
                return Ok(());
            }
            let mut told = self.shared.state();
            told.checked.rounds += 1;
            caught = told.caught.unwrap_or(caught);
        }
    }

    /// Runs one round. Returns false if the check is to end.
    fn one(&self, rolling: &mut Rolling) -> Result<bool, verify::Error> {
        let began = Instant::now();
        let all = rolling.work().max(1);
        let piece = (all / PIECES).max(MIN_RATE);
        let mut reached = 0_u64;
        loop {
            let Some(caught) = self.caught() else {
                return Ok(false);
            };
            let mut pace = Pace::new(all, self.settings.round);
            let looked = rolling.look(caught, piece, &mut |now| pace.keep(now, &self.shared))?;
            let round = looked.round;
            if !self.take(looked) {
                return Ok(false);
            }
            reached = reached.saturating_add(piece).min(all);
            let due = if round { all } else { reached };
            // The pieces are spread evenly over the time of the round.
            let until = began + self.settings.round.mul_f64(due as f64 / all as f64);
            if !self.pass(rolling, until)? {
                return Ok(false);
            }
            if round {
                return Ok(true);
            }
        }
    }

    /// Until the next piece is due, examines again what was not equal.
    fn pass(&self, rolling: &mut Rolling, until: Instant) -> Result<bool, verify::Error> {
        loop {
            if rolling.is_open() {
                let Some(caught) = self.caught() else {
                    return Ok(false);
                };
                let mut pace = Pace::new(0, self.settings.round);
                let looked = rolling.look_again(caught, &mut |now| pace.keep(now, &self.shared))?;
                if !self.take(looked) {
                    return Ok(false);
                }
            }
            let soon = Instant::now() + STEP;
            if !self.shared.wait(soon.min(until)) {
                return Ok(false);
            }
            if Instant::now() >= until {
                return Ok(true);
            }
        }
    }

    /// Waits for the last moment at which the log had everything. `None` if the check is to end
    /// before.
    fn caught(&self) -> Option<SyncPoint> {
        while !self.shared.ended() {
            let caught = self.shared.state().caught;
            if caught.is_some() {
                return caught;
            }
            thread::sleep(STEP);
        }
        None
    }

    fn go_on(&self) -> ControlFlow<()> {
        match self.shared.ended() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Reports, counts and hands on the results of a piece. Returns false if the piece was aborted.
    fn take(&self, looked: RoundReport) -> bool {
        let source = self.settings.source;
        let (not, again, still) = match source {
            true => (
                "the log has not what the tree has",
                "the log has again what the tree has",
                "the log still has not what the tree has",
            ),
            false => (
                "the tree has not what the log says",
                "the tree has again what the log says",
                "the tree still has not what the log says",
            ),
        };
        for one in &looked.differing {
            let (path, what) = (self.path(&one.path), words(&one.all));
            let then = if source { "; it is read again" } else { "" };
            tracing::warn!("{path}: {not}: {what}{then}");
        }
        for path in &looked.mended {
            tracing::info!("{}: {again}", self.path(path));
        }
        for path in &looked.left {
            tracing::warn!("{}: {still}", self.path(path));
        }
        let mut told = self.shared.state();
        let checked = &mut told.checked;
        checked.names += looked.names;
        checked.bytes += looked.bytes;
        checked.differences += looked.differing.len() as u64;
        checked.mended += looked.mended.len() as u64;
        checked.undecided += looked.undecided;
        if source {
            told.suspects.extend(looked.differing);
        }
        !looked.ended
    }

    /// The path in one line, whatever characters it has.
    fn path(&self, below: &Path) -> String {
        let path = match below.as_os_str().is_empty() {
            true => self.settings.tree.clone(),
            false => self.settings.tree.join(below),
        };
        path.as_os_str()
            .as_encoded_bytes()
            .escape_ascii()
            .to_string()
    }
}

/// Limits the rate at which a piece is read.
#[derive(Debug)]
struct Pace {
    began: Instant,
    /// In bytes per second. Each name counts as a fixed number of bytes.
    rate: f64,
}

impl Pace {
    fn new(all: u64, round: Duration) -> Self {
        // Twice the required rate, so that a piece is done before the next one is due.
        let needed = 2.0 * all as f64 / round.as_secs_f64();
        Self {
            began: Instant::now(),
            rate: needed.max(RATE as f64),
        }
    }

    fn keep(&mut self, now: &Progress, shared: &Shared) -> ControlFlow<()> {
        let due = Duration::from_secs_f64(now.work() as f64 / self.rate);
        match shared.wait(self.began + due) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

/// The parts of a file to read for these differences. The names of its directory are always read.
fn parts(all: &[Difference]) -> Vec<Part> {
    let mut parts = Vec::new();
    for one in all {
        match one.what {
            What::Bytes => parts.extend(
                one.ranges
                    .iter()
                    .map(|&(offset, length)| Part::Range { offset, length }),
            ),
            What::Size | What::Mode | What::Owner | What::Modified | What::Extended => {
                parts.push(Part::Attributes);
            }
            What::Missing
            | What::Extra
            | What::Kind
            | What::Links
            | What::Target
            | What::Device => {}
        }
    }
    parts
}

fn words(all: &[Difference]) -> String {
    let one = |one: &Difference| match one.ranges.first() {
        Some((offset, _)) => format!("{} from {offset} on", one.what.name()),
        None => one.what.name().to_owned(),
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}
