//! Lists the epochs of a log, and finds the epoch of a point in time.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use datapath::{Classify, ErrorClass};
use units::Timestamp;

use crate::log::{self, Reader};
use crate::record::{Change, Entry, File, Record, Subject};
use crate::tree::{Stale, Tree};

/// An epoch of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    pub number: u64,
    /// The number of its record.
    pub record: u64,
    /// When the capture wrote that record.
    pub at: Timestamp,
    /// Why the epoch was written. `None` for logs of earlier versions, which do not record it.
    pub cause: Option<Cause>,
    /// The number of files of all kinds below the root, and the total size of all files in bytes.
    pub files: u64,
    pub bytes: u64,
    /// The number of files created, removed or changed since the previous epoch, and the bytes of
    /// content that the log recorded for them.
    pub changed_files: u64,
    pub changed_bytes: u64,
    /// Files that the epoch has in an earlier state. An epoch without such files is whole.
    pub stale: Stale,
}

/// The reason for an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A program synced, renamed or linked a file.
    Barrier,
    /// Nothing happened for a while, or much happened without a barrier.
    Time,
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Time => "time",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error("{} begins with epoch {first} at {begins}, after {at}: name a later time", .folder.display())]
    Later {
        folder: PathBuf,
        at: Timestamp,
        first: u64,
        begins: Timestamp,
    },
    #[error("{at} lies in the future: it is {now} now")]
    Future { at: Timestamp, now: Timestamp },
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Log(error) => error.class(),
            Self::Later { .. } | Self::Future { .. } => ErrorClass::Input,
        }
    }
}

/// Passes each epoch of a log to `each`, in order, until it breaks off.
///
/// # Errors
/// Returns the error of a damaged or unreadable log.
pub fn each(
    folder: &Path,
    each: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<(), log::Error> {
    let mut reader = Reader::open_log(folder)?;
    let mut counts = Counts::default();
    while let Some(located) = reader.read()? {
        let folded = counts.follow(&located.record);
        let epoch = folded.map_err(|invalid| log::Error::Invalid {
            folder: folder.to_owned(),
            invalid,
        })?;
        if epoch.is_some_and(|epoch| each(&epoch).is_break()) {
            break;
        }
    }
    Ok(())
}

/// Returns the number of the last epoch that was written at or before this time. If the clock of
/// the source was set back, the epoch with the latest time counts, and among equal times the later
/// epoch.
///
/// # Errors
/// [`Error`] if no epoch is that early, or the time is later than `now`.
pub fn at(folder: &Path, at: Timestamp, now: Timestamp) -> Result<u64, Error> {
    if at > now {
        return Err(Error::Future { at, now });
    }
    let mut reader = Reader::open_log(folder)?;
    let mut first: Option<(Timestamp, u64)> = None;
    let mut best: Option<(Timestamp, u64)> = None;
    while let Some(located) = reader.read()? {
        let Record { at_ns, entry, .. } = located.record;
        let Entry::Epoch { number } = entry else {
            continue;
        };
        let written = Timestamp(at_ns);
        first = first.or(Some((written, number)));
        if written <= at && best.is_none_or(|(before, _)| before <= written) {
            best = Some((written, number));
        }
    }
    let folder = folder.to_owned();
    match (best, first) {
        (Some((_, number)), _) => Ok(number),
        (None, Some((begins, first))) => Err(Error::Later {
            folder,
            at,
            first,
            begins,
        }),
        (None, None) => Err(log::Error::NoEpochs(folder).into()),
    }
}

/// Counters that are updated with each record, so that the whole tree need not be visited for each
/// epoch.
#[derive(Debug, Default)]
struct Counts {
    tree: Tree,
    files: u64,
    bytes: u64,
    changed: BTreeSet<File>,
    changed_bytes: u64,
    barrier: bool,
}

impl Counts {
    fn follow(&mut self, record: &Record) -> Result<Option<Epoch>, crate::tree::Invalid> {
        match &record.entry {
            Entry::Change(change) => {
                let about = self.about(change);
                let before = self.sum(&about);
                self.tree.fold(record)?;
                let after = self.sum(&about);
                self.files = self.files - before.0 + after.0;
                self.bytes = self.bytes.wrapping_sub(before.1).wrapping_add(after.1);
                self.changed_bytes += record.bytes() as u64;
                self.changed.extend(about.into_iter().flatten());
                return Ok(None);
            }
            Entry::Start { .. } => (self.files, self.bytes) = (0, 0),
            Entry::Barrier => self.barrier = true,
            Entry::Source(_)
            | Entry::Term(_)
            | Entry::Renumber { .. }
            | Entry::Patterns(_)
            | Entry::Stale { .. }
            | Entry::Epoch { .. } => {}
        }
        self.tree.fold(record)?;
        let Entry::Epoch { number } = record.entry else {
            return Ok(None);
        };
        let cause = match std::mem::take(&mut self.barrier) {
            true => Cause::Barrier,
            false => Cause::Time,
        };
        let changed = std::mem::take(&mut self.changed);
        Ok(Some(Epoch {
            number,
            record: record.number,
            at: Timestamp(record.at_ns),
            // Versions that record the source also record barriers.
            cause: self.tree.source().map(|_| cause),
            files: self.files,
            bytes: self.bytes,
            changed_files: changed.len() as u64,
            changed_bytes: std::mem::take(&mut self.changed_bytes),
            stale: Stale::of(&self.tree),
        }))
    }

    /// The files that a change concerns: its file, and the file that loses a name to it.
    fn about(&self, change: &Change) -> [Option<File>; 2] {
        match change.subject() {
            Subject::File(file) => [Some(file), None],
            Subject::Entry {
                directory,
                name,
                file,
            } => {
                let other = self.tree.child(directory, name);
                [file, other.filter(|other| Some(*other) != file)]
            }
            Subject::Knowledge => [None, None],
        }
    }

    /// The number of these files that are in the tree below the root, and the sum of their sizes.
    fn sum(&self, files: &[Option<File>; 2]) -> (u64, u64) {
        let nodes = files
            .iter()
            .flatten()
            .filter_map(|file| self.tree.get(*file));
        let named = nodes.filter(|node| !node.names.is_empty());
        named.fold((0, 0), |(files, bytes), node| {
            (files + 1, bytes.saturating_add(node.size))
        })
    }
}
