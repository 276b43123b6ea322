//! A replica's tree, kept up to date from a log.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::Error;
use crate::apply::{self, Applied, Options, Replica};
use crate::ship::Watch;

#[derive(Clone, Debug)]
pub struct Settings {
    pub log: PathBuf,
    /// Made if there is none.
    pub to: PathBuf,
    pub options: Options,
    /// Makes a replica anew that cannot go on: of another log, or of an epoch that the log does not have
    /// any more.
    pub anew: bool,
}

/// A replica that is being kept up to date.
#[derive(Debug)]
pub struct Applying {
    watch: Watch,
    replica: Replica,
    done: Done,
}

/// All that was done since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub steps: u64,
    pub names: u64,
    pub bytes: u64,
    pub repaired: u64,
    /// Between the last epoch's record and its being shown.
    pub lag: Duration,
    pub last: Applied,
}

impl Settings {
    /// Takes the replica up.
    ///
    /// # Errors
    /// [`Error::Input`] if there is no such log; [`Error::Apply`].
    pub fn start(&self) -> Result<Applying, Error> {
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
        }?;
        let mut done = Done::default();
        (done.last.epoch, done.last.record) = replica.reached();
        Ok(Applying {
            watch,
            replica,
            done,
        })
    }
}

impl Applying {
    /// Applies the last epoch that there is by now, or this one. False: there was nothing to do.
    ///
    /// # Errors
    /// [`Error::Apply`], [`Error::Watch`]
    pub fn step(&mut self, up_to: Option<u64>) -> Result<bool, Error> {
        self.watch.told().map_err(Error::Watch)?;
        let applied = self.replica.apply(up_to)?;
        if let Some(applied) = &applied {
            self.done.count(applied);
        }
        Ok(applied.is_some())
    }

    /// Until the log may have grown, or this long.
    ///
    /// # Errors
    /// [`Error::Watch`]
    pub fn wait(&self, at_most: Duration) -> Result<(), Error> {
        self.watch.wait(at_most).map_err(Error::Watch)
    }

    pub fn done(&self) -> &Done {
        &self.done
    }

    /// Ends in good order: the next run can trust the tree.
    ///
    /// # Errors
    /// [`Error::Apply`]
    pub fn finish(self) -> Result<Done, Error> {
        self.replica.end()?;
        Ok(self.done)
    }
}

impl Done {
    fn count(&mut self, applied: &Applied) {
        self.steps += 1;
        self.names += applied.names;
        self.bytes += applied.bytes;
        self.repaired += applied.repaired;
        let written = SystemTime::UNIX_EPOCH + Duration::from_nanos(applied.at_ns);
        self.lag = written.elapsed().unwrap_or_default();
        self.last = *applied;
    }
}
