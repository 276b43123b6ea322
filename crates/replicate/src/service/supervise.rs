//! The thread of a part: starts it, restarts it after temporary errors, and reports its state.

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::acknowledgements::Acknowledgements;
use super::keep::Keep;
use super::part::Working;
use super::status::{PartReport, PartStatus, Progress, State};
use super::tip::Tips;
use super::{Error, Kind, Part, STEP};
use crate::log;
use crate::make::Gate;

/// The shortest and the longest delay between attempts.
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// How often a part that others wait for reports its progress.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The state of a part that other threads read.
#[derive(Debug)]
pub(super) struct PartState {
    name: String,
    pub(super) kind: Kind,
    log: PathBuf,
    /// The acknowledgements of the log's replicas, if a capture waits for them.
    confirmed: Option<Arc<Acknowledgements>>,
    known: Mutex<PartReport>,
    /// Its next step may remove most of a replica's files.
    allowed: AtomicBool,
    /// The gate that an apply checks before each call.
    gate: Gate,
}

impl PartState {
    pub(super) fn new(part: &Part, confirmed: Option<Arc<Acknowledgements>>) -> Self {
        Self {
            name: part.name.clone(),
            kind: part.kind(),
            log: part.job.log().to_owned(),
            confirmed,
            known: Mutex::default(),
            allowed: AtomicBool::new(false),
            gate: Gate::closable(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Aborts the current step of an apply.
    pub(super) fn cut_off(&self) {
        self.gate.close();
    }

    /// Lets a halted part take its step. Returns false if the part is not halted.
    pub(super) fn allow_delete_once(&self) -> bool {
        let halted = self.state() == State::Halted;
        if halted {
            self.allowed.store(true, Ordering::Relaxed);
        }
        halted
    }

    pub(super) fn state(&self) -> State {
        self.known().state
    }

    /// Whether the part has what others need of it, or cannot get it by waiting.
    pub(super) fn begun(&self) -> bool {
        let known = self.known();
        match known.state {
            State::Starting => false,
            State::Running | State::Waiting | State::Halted => {
                known.progress.as_ref().is_some_and(Progress::has_tree)
            }
            State::Retrying | State::Failed | State::Ended => true,
        }
    }

    /// What a running part without a tree is waiting for.
    pub(super) fn awaits(&self) -> Option<String> {
        if self.begun() || self.state() == State::Starting {
            return None;
        }
        let trouble = self.known().trouble.clone();
        let log = self.log.display();
        Some(trouble.unwrap_or_else(|| format!("{log} has no epoch yet")))
    }

    pub(super) fn status(&self, tips: &mut Tips) -> PartStatus {
        let known = self.known().clone();
        PartStatus::new(&self.name, self.kind, &self.log, &known, tips)
    }

    /// Runs until `end` is set, or until an error that does not pass by itself.
    pub(super) fn work(&self, mut part: Part, end: &AtomicBool) {
        let (mut delay, mut said) = (MIN_DELAY, String::new());
        let keep = self.keep(&part);
        part.job.ask(&self.gate);
        let mut full = false;
        loop {
            let begun = Instant::now();
            let follow = || self.follow(&mut part, keep.as_ref(), full, end);
            let worked = panic::catch_unwind(AssertUnwindSafe(follow));
            if let Some(confirmed) = &self.confirmed {
                confirmed.report(&self.name, None);
            }
            let Err(error) = worked.unwrap_or(Err(Error::Panicked)) else {
                self.known().state = State::Ended;
                return;
            };
            let text = error.to_string();
            full = error.is_full();
            let ending = end.load(Ordering::Relaxed);
            let again = error.passes() && !ending;
            if begun.elapsed() > MAX_DELAY {
                (delay, said) = (MIN_DELAY, String::new());
            }
            if text != said {
                let then = if again { "; trying again" } else { "" };
                tracing::error!("{}: {text}{then}", self.name);
            }
            let mut known = self.known();
            known.trouble = Some(text.clone());
            known.failures += 1;
            if let Some(progress) = &mut known.progress {
                progress.stopped();
            }
            known.state = if again {
                State::Retrying
            } else {
                State::Failed
            };
            drop(known);
            if !again || !waited(delay, end) {
                return;
            }
            (delay, said) = ((delay * 2).min(MAX_DELAY), text);
        }
    }

    /// Starts limiting the size of its log, if requested, for as long as the part runs or retries.
    fn keep(&self, part: &Part) -> Option<Keep> {
        let begun = Keep::begin(&self.log, part.job.keep()?);
        match begun {
            Ok(keep) => {
                keep.hold(true);
                Some(keep)
            }
            Err(error) => {
                tracing::warn!("{}: its log is not kept to a size: {error}", self.name);
                None
            }
        }
    }

    fn begin(&self, part: &mut Part, full: bool) -> Result<Working, Error> {
        // A capture reads its log and its tree before it writes a byte.
        if full && self.kind == Kind::Capture {
            log::try_room(&self.log)?;
        }
        let working = part.job.begin(self.confirmed.clone())?;
        part.job.begun();
        Ok(working)
    }

    /// `full` tells whether it last ended with a full disk.
    fn follow(
        &self,
        part: &mut Part,
        keep: Option<&Keep>,
        full: bool,
        end: &AtomicBool,
    ) -> Result<(), Error> {
        let hold = |held| keep.map_or((), |keep| keep.hold(held));
        hold(true);
        let begun = self.begin(part, full);
        hold(false);
        let mut working = begun?;
        let wait = self.confirmed.as_ref().map_or(STEP, |_| POLL_INTERVAL);
        while !end.load(Ordering::Relaxed) {
            let mut told = Instant::now();
            if self.allowed.swap(false, Ordering::Relaxed) {
                working.allow_delete_once();
            }
            let progress = working.step(wait, &mut |now| {
                if told.elapsed() >= POLL_INTERVAL {
                    told = Instant::now();
                    self.reached(now);
                }
                end.load(Ordering::Relaxed)
            })?;
            self.reached(progress);
        }
        let progress = working.finish()?;
        self.reached(progress);
        Ok(())
    }

    fn reached(&self, progress: Progress) {
        if let Some(confirmed) = &self.confirmed {
            confirmed.report(&self.name, Some(&progress));
        }
        let mut known = self.known();
        if progress.ready() {
            let trouble = progress.trouble().map(str::to_owned);
            if let (Progress::Apply(_), Some(trouble)) = (&progress, &trouble)
                && known.trouble.as_ref() != Some(trouble)
            {
                tracing::error!("{}: {trouble}", self.name);
            }
            known.trouble = trouble;
            known.state = match (progress.halted(), progress.waits()) {
                (true, _) => State::Halted,
                (false, true) => State::Waiting,
                (false, false) => State::Running,
            };
        }
        known.progress = Some(progress);
    }

    fn known(&self) -> MutexGuard<'_, PartReport> {
        // The state is consistent between any two statements, so a poisoned lock is usable.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits. Returns false if the end came first.
fn waited(delay: Duration, end: &AtomicBool) -> bool {
    let since = Instant::now();
    while since.elapsed() < delay {
        if end.load(Ordering::Relaxed) {
            return false;
        }
        thread::sleep(STEP);
    }
    true
}
