//! Which epochs a log has, and which of them a time means.

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
    /// When the capture wrote that.
    pub at: Timestamp,
    /// Why there is one; none where the log does not tell, as those of earlier versions.
    pub cause: Option<Cause>,
    /// Files of all kinds below the root, and the sizes of all files together, in bytes.
    pub files: u64,
    pub bytes: u64,
    /// Files that are new, gone or changed since the epoch before, and bytes of their content that the log has from
    /// then.
    pub changed_files: u64,
    pub changed_bytes: u64,
    /// Files that it has an earlier state of; an epoch without any is whole.
    pub stale: Stale,
}

/// What an epoch was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A program has synced, renamed or linked a file.
    Barrier,
    /// Nothing has happened for a while, or much has without a barrier.
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

/// Hands on each epoch of a log, in their order, until `each` breaks off.
///
/// # Errors
/// What is wrong with the log.
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

/// The number of the last epoch that was written at this time or earlier. Where the source's clock was set back, the
/// latest time counts, and of equal times the later epoch.
///
/// # Errors
/// [`Error`]: there is none, or the time is later than `now`.
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

/// What is known of a tree and of what happens to it, without looking at all of it for each epoch.
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
            // Versions that say the source say barriers as well.
            cause: self.tree.source().map(|_| cause),
            files: self.files,
            bytes: self.bytes,
            changed_files: changed.len() as u64,
            changed_bytes: std::mem::take(&mut self.changed_bytes),
            stale: Stale::of(&self.tree),
        }))
    }

    /// The files that a change is about: one, and one that it takes a name from.
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

    /// How many of these files are in the tree below the root, and their bytes.
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
