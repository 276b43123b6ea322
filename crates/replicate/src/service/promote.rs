//! Promotes a replica to the source: its tree continues by itself, and only a capture of it can
//! continue the log.

use std::path::PathBuf;

use super::Error;
use super::capture::now_ns;
use super::upstream::Upstream;
use crate::apply::{self, Gate, Options, Replica, ReplicaState, TREE};
use crate::capture::{self, Capture};
use crate::log::{self, Last, Reader, Writer};
use crate::record::{Entry, Term};
use crate::tree::Stale;

#[derive(Clone, Debug)]
pub struct Settings {
    /// The log of the replica.
    pub log: PathBuf,
    /// The folder of the replica.
    pub replica: PathBuf,
    /// Lets the last epochs remove most of the files.
    pub allow_delete: bool,
    /// Refuses if anything known would be lost.
    pub no_loss: bool,
    pub gate: Gate,
}

/// What a promotion would do, or has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    pub log: PathBuf,
    pub tree: PathBuf,
    /// The new term of the log.
    pub term: u64,
    /// The replica was promoted before.
    pub already: bool,
    pub losses: Losses,
    /// Files that the epoch has in an earlier state. `None` if nothing was applied.
    pub stale: Option<Stale>,
}

/// What the promoted tree contains, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The epoch of the tree, and its record.
    pub epoch: u64,
    pub record: u64,
    pub epoch_ns: u64,
    /// The number of epochs that the promotion itself applies.
    pub applied: u64,
    /// Records after the epoch, which no epoch contains, and when the last one was written.
    pub unfinished: u64,
    pub unfinished_ns: Option<u64>,
    /// What the copy knows of its source. `None` for a log that was not received.
    pub upstream: Option<Upstream>,
}

impl Losses {
    /// Epochs that the source is known to have had and that the log lacks. `None` if the source did
    /// not report them.
    pub fn missing_epochs(&self) -> Option<u64> {
        match &self.upstream {
            None => Some(0),
            Some(upstream) => Some(upstream.epoch?.saturating_sub(self.epoch)),
        }
    }

    /// Records that the source is known to have had and that are in no epoch of the log.
    pub fn missing_records(&self) -> Option<u64> {
        match &self.upstream {
            None => Some(self.unfinished),
            Some(upstream) => {
                let record = upstream.record?;
                Some(record.saturating_sub(self.record).max(self.unfinished))
            }
        }
    }

    /// When the last record that is known to be missing was written, in nanoseconds since 1970.
    /// `None` if nothing is missing.
    pub fn missing_until_ns(&self) -> Option<u64> {
        let missing = self.missing_records().is_some_and(|records| records > 0);
        let heard = self.upstream.as_ref().map(|upstream| upstream.heard_ns);
        let until = heard.max(self.unfinished_ns);
        until.filter(|_| missing)
    }

    /// Nothing is known of what the source wrote after this time, in nanoseconds since 1970.
    pub fn known_until_ns(&self) -> u64 {
        let written = self.unfinished_ns.unwrap_or(self.epoch_ns);
        let heard = self
            .upstream
            .as_ref()
            .map_or(0, |upstream| upstream.heard_ns);
        written.max(heard).max(self.epoch_ns)
    }

    /// Messages of a stream that the copy lacked.
    pub fn pending(&self) -> u64 {
        let upstream = self.upstream.as_ref();
        upstream.and_then(|upstream| upstream.pending).unwrap_or(0)
    }

    fn refusal(&self) -> Option<String> {
        let what = match (
            self.missing_epochs(),
            self.missing_records(),
            self.pending(),
        ) {
            (Some(epochs), _, _) if epochs > 0 => {
                format!("{epochs} epochs of the source are missing")
            }
            (_, Some(records), _) if records > 0 => format!("{records} records are in no epoch"),
            (_, _, pending) if pending > 0 => {
                format!("{pending} messages of the stream were not received")
            }
            _ => return None,
        };
        Some(format!(
            "{what}: nothing was promoted; receive them, or promote without --no-loss"
        ))
    }
}

/// The end of a log.
#[derive(Debug, Default)]
struct End {
    epoch: u64,
    epoch_record: Last,
    last: Last,
}

impl Settings {
    /// What a promotion would do. Changes nothing.
    ///
    /// # Errors
    /// As [`Self::run`], as far as the errors can be known in advance.
    pub fn plan(&self) -> Result<Promotion, Error> {
        let standing = self.standing()?;
        let options = capture::Options {
            look: true,
            ..capture::Options::default()
        };
        Capture::check(&self.tree(), &options)?;
        let (root, source) = Capture::identify(&self.tree())?;
        let terms = log::terms(&self.log)?;
        let last = terms.last().map(|last| &last.term);
        let already =
            last.is_some_and(|term| term.root == root && term.source.is_on_volume_of(&source));
        let already = already && standing.promoted;
        let term = last.map_or(Term::FIRST, |term| term.number);
        let end = self.end()?;
        let promotion = Promotion {
            log: self.log.clone(),
            tree: self.tree(),
            term: if already { term } else { term + 1 },
            already,
            losses: self.losses(&end, standing.epoch)?,
            stale: None,
        };
        self.judge(&promotion)?;
        Ok(promotion)
    }

    /// Applies the rest of the log, and promotes the replica. No other program may write the log or
    /// the replica.
    ///
    /// # Errors
    /// [`Error::Apply`], [`Error::Log`], [`Error::Capture`] if the tree cannot be captured, and
    /// [`Error::Unfinished`] if something would be lost and must not be.
    pub fn run(&self) -> Result<Promotion, Error> {
        let planned = self.plan()?;
        if planned.already {
            return Ok(planned);
        }
        let standing = self.standing()?;
        let mut writer = Writer::open(&self.log, log::Options::default())?;
        let replica = match standing.promoted {
            // An earlier run was killed before it had written the promotion to the log, or the log
            // was rewound since.
            true => None,
            false => Some(self.caught_up()?),
        };
        let stale = replica.as_ref().map(Replica::stale);
        let reached = replica
            .as_ref()
            .map_or(standing.epoch, |replica| replica.reached().0);
        if reached != writer.epoch() {
            let (log, epoch) = (self.log.clone(), reached);
            return Err(apply::Error::Behind { log, epoch }.into());
        }
        let (root, source) = Capture::identify(&self.tree())?;
        let term = Term {
            number: writer.term() + 1,
            epoch: writer.epoch(),
            epoch_ns: writer.epoch_record().at_ns,
            root,
            source,
        };
        // Records after the last epoch are not a state of the tree.
        writer.rewind(writer.epoch_record().number)?;
        // First the tree, so that nothing is applied to it any more when the log has the promotion.
        if let Some(replica) = replica {
            replica.promote()?;
        }
        let number = term.number;
        writer.append(now_ns(), Entry::Term(term))?;
        writer.sync()?;
        Ok(Promotion {
            term: number,
            stale,
            ..planned
        })
    }

    fn tree(&self) -> PathBuf {
        self.replica.join(TREE)
    }

    fn standing(&self) -> Result<ReplicaState, Error> {
        log::check(&self.log)?;
        let standing = ReplicaState::read(&self.replica)?;
        let id = Reader::open(&self.log)?.id()?;
        match id == Some(standing.log) {
            true => Ok(standing),
            false => Err(apply::Error::OtherLog {
                to: self.replica.clone(),
                log: self.log.clone(),
            }
            .into()),
        }
    }

    /// The replica at the last epoch of the log.
    fn caught_up(&self) -> Result<Replica, Error> {
        let options = Options {
            allow_delete: self.allow_delete,
            gate: self.gate.clone(),
            ..Options::default()
        };
        let opened = match Replica::open(&self.log, &self.replica, options.clone()) {
            Err(apply::Error::Privileged { made, .. }) => {
                let privileged = made;
                Replica::open(
                    &self.log,
                    &self.replica,
                    Options {
                        privileged,
                        ..options
                    },
                )
            }
            opened => opened,
        };
        let mut replica = opened?;
        while replica.apply(None)?.is_some() {}
        Ok(replica)
    }

    fn end(&self) -> Result<End, Error> {
        let mut reader = Reader::open_late(&self.log)?;
        let mut end = End::default();
        while let Some(located) = reader.read()? {
            let record = located.record;
            end.last = Last {
                number: record.number,
                at_ns: record.at_ns,
            };
            match record.entry {
                Entry::Epoch { number } => {
                    end.epoch = number;
                    end.epoch_record = end.last;
                }
                // These entries do not describe the tree.
                Entry::Term(_) | Entry::Renumber { .. } if end.epoch_record.number > 0 => {
                    end.epoch_record.number = end.last.number;
                }
                _ => {}
            }
        }
        if end.epoch == 0 {
            return Err(log::Error::NoEpochs(self.log.clone()).into());
        }
        Ok(end)
    }

    fn losses(&self, end: &End, reached: u64) -> Result<Losses, Error> {
        let unfinished = end.last.number - end.epoch_record.number;
        let upstream = Upstream::read(&self.log);
        let upstream = upstream
            .map_err(|error| Error::Input(format!("{}: upstream: {error}", self.log.display())))?;
        Ok(Losses {
            epoch: end.epoch,
            record: end.epoch_record.number,
            epoch_ns: end.epoch_record.at_ns,
            applied: end.epoch.saturating_sub(reached),
            unfinished,
            unfinished_ns: (unfinished > 0).then_some(end.last.at_ns),
            upstream,
        })
    }

    fn judge(&self, promotion: &Promotion) -> Result<(), Error> {
        let refusal = promotion.losses.refusal();
        match refusal.filter(|_| self.no_loss && !promotion.already) {
            Some(refusal) => Err(Error::Unfinished(refusal)),
            None => Ok(()),
        }
    }
}
