//! Keeps the tree of a replica up to date from a log.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::Error;
use super::check::{self, Check, CheckReport};
use crate::apply::{self, Options, Replica, SkipCounts, StepReport};
use crate::log;
use crate::ship::Watch;
use crate::verify::{Scope, SyncPoint};

#[derive(Clone, Debug)]
pub struct Settings {
    pub log: PathBuf,
    /// Created if there is none.
    pub to: PathBuf,
    pub options: Options,
    /// Builds a replica anew that cannot continue, because it is of another log, or of an epoch
    /// that the log no longer has.
    pub anew: bool,
    /// The length of a round of the check beside it. `None` for no check.
    pub check: Option<Duration>,
}

/// How often a step is retried for which there was no space.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A replica that is being kept up to date.
#[derive(Debug)]
pub struct Applying {
    settings: Settings,
    watch: Watch,
    replica: Replica,
    done: Done,
    check: Option<Check>,
    /// When there was not enough space for the next step.
    full: Option<Instant>,
}

/// Why the next step is not started. The replica stays as it is, and nothing is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub why: String,
    /// If true, the step would remove most of the files, and continues when that is allowed or a
    /// later epoch has the files again. If false, there is no space, and it continues when there
    /// is.
    pub deletes: bool,
}

/// What was done since the start.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub steps: u64,
    pub names: u64,
    pub bytes: u64,
    pub repaired: u64,
    /// What was omitted, counted each time.
    pub left: SkipCounts,
    /// The time from the record of the last epoch until the tree shows it.
    pub lag: Duration,
    pub last: StepReport,
    /// The results of the check beside it.
    pub checked: Option<CheckReport>,
    pub hold: Option<Hold>,
}

impl Settings {
    fn checks(&self) -> Option<check::Settings> {
        Some(check::Settings {
            tree: self.to.join(apply::TREE),
            log: self.log.clone(),
            scope: Scope {
                // Only root can give files away.
                owners: rustix::process::geteuid().is_root(),
                privileged: self.options.privileged,
            },
            source: false,
            round: self.check?,
        })
    }

    /// Maps an error that was caused by closing the gate.
    fn cut_off(&self, error: apply::Error) -> apply::Error {
        match self.options.gate.is_closed() {
            true => apply::Error::Ended(self.to.clone()),
            false => error,
        }
    }

    /// Opens the replica.
    ///
    /// # Errors
    /// [`Error::Input`] if there is no such log; [`Error::Apply`].
    pub fn start(&self) -> Result<Applying, Error> {
        check::Settings::check(self.check)?;
        log::check_followed(&self.log)?;
        let watch = Watch::new(&self.log)
            .map_err(|error| Error::Input(format!("{}: {error}", self.log.display())))?;
        let opened = Replica::open(&self.log, &self.to, self.options.clone());
        let replica = match opened {
            Err(error @ (apply::Error::OtherLog { .. } | apply::Error::Behind { .. }))
                if self.anew =>
            {
                tracing::warn!("{error}: beginning anew");
                let fresh = true;
                let options = self.options.clone();
                Replica::open(&self.log, &self.to, Options { fresh, ..options })
            }
            opened => opened,
        };
        let replica = replica.map_err(|error| self.cut_off(error))?;
        let mut done = Done::default();
        (done.last.epoch, done.last.record) = replica.reached();
        let check = self.checks().map(Check::begin).transpose()?;
        Ok(Applying {
            settings: self.clone(),
            watch,
            replica,
            done,
            check,
            full: None,
        })
    }
}

impl Applying {
    /// Applies the log's last epoch so far, or the epoch `up_to`. Returns false if there was
    /// nothing to do.
    ///
    /// # Errors
    /// [`Error::Apply`], [`Error::Watch`]
    pub fn step(&mut self, up_to: Option<u64>) -> Result<bool, Error> {
        self.watch.drain().map_err(Error::Watch)?;
        let applied = self.replica.apply(up_to);
        let applied = applied.map_err(|error| self.settings.cut_off(error))?;
        if let Some(applied) = &applied {
            self.done.count(applied);
        }
        if let Some(check) = &self.check {
            let caught = SyncPoint {
                epoch: self.done.last.epoch,
                at: SystemTime::now(),
            };
            // Before the first epoch there is no tree.
            let caught = (caught.epoch > 0).then_some(caught);
            self.done.checked = Some(check.tell(caught));
        }
        Ok(applied.is_some())
    }

    /// As [`Self::step`] to the last epoch, but it is no error if the step would remove most of the
    /// files or there is no space for it. [`Done::hold`] then has the reason, and a later call
    /// tries again.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn follow(&mut self) -> Result<bool, Error> {
        if self
            .full
            .is_some_and(|since| since.elapsed() < RETRY_INTERVAL)
        {
            return Ok(false);
        }
        self.full = None;
        let error = match self.step(None) {
            Err(Error::Apply(
                error @ (apply::Error::Deletion { .. } | apply::Error::Room { .. }),
            )) => error,
            stepped => {
                self.done.hold = None;
                return stepped;
            }
        };
        let deletes = matches!(error, apply::Error::Deletion { .. });
        self.full = (!deletes).then(Instant::now);
        let why = error.to_string();
        self.done.hold = Some(Hold { why, deletes });
        Ok(false)
    }

    /// Lets the next step remove most of the files.
    pub fn allow_delete_once(&mut self) {
        self.replica.allow_delete_once();
    }

    /// Waits until the log may have grown, or this long.
    ///
    /// # Errors
    /// [`Error::Watch`]
    pub fn wait(&self, at_most: Duration) -> Result<(), Error> {
        self.watch.wait(at_most).map_err(Error::Watch)
    }

    pub fn done(&self) -> &Done {
        &self.done
    }

    /// Ends cleanly, so that the next run can trust the tree.
    ///
    /// # Errors
    /// [`Error::Apply`]
    pub fn finish(self) -> Result<Done, Error> {
        self.replica.end()?;
        Ok(self.done)
    }
}

impl Done {
    fn count(&mut self, applied: &StepReport) {
        self.steps += 1;
        self.names += applied.names;
        self.bytes += applied.bytes;
        self.repaired += applied.repaired;
        self.left += applied.left;
        let written = SystemTime::UNIX_EPOCH + Duration::from_nanos(applied.at_ns);
        self.lag = written.elapsed().unwrap_or_default();
        self.last = *applied;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_step_leaves_out_is_counted() {
        let mut done = Done::default();
        for devices in [2, 0, 1] {
            done.count(&StepReport {
                left: SkipCounts {
                    devices,
                    ..SkipCounts::default()
                },
                ..StepReport::default()
            });
        }
        assert_eq!((done.left.devices, done.last.left.devices), (3, 1));
    }
}
