//! Compares a folder with the tree of a log, byte for byte, or computes a hash of either for
//! comparison elsewhere. Decides what is compared. What to do about a difference is up to the
//! caller.

mod compare;
mod content;
mod hash;
mod live;
mod name_selection;
mod of_folder;
mod of_log;
mod rebuild;
mod report;
mod rolling;
mod side;

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use datapath::{Classify, ErrorClass};

use crate::log::{self, Reader};
use crate::patterns::{self, Filter, Patterns};
use crate::record::Entry;
use crate::restore::{State, last_epoch};
use crate::tree::Stale;
use compare::Compare;
use name_selection::NameSelection;
use of_folder::OfFolder;
use of_log::OfLog;
use side::Nobody;

pub use hash::Hash;
pub use live::verify_live;
pub use rebuild::{Rebuilt, Step, verify_rebuilt};
pub use report::{Difference, Uncertainty, Verdict, What};
pub use rolling::{Differing, Rolling, RoundReport, SyncPoint};

/// The size of the blocks that are compared and hashed, in bytes.
pub const BLOCK: usize = 64 << 10;
/// The cost of examining a name, expressed in bytes read.
const NAME_COST: u64 = 4096;

/// What is compared of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Owners and groups. Only root can give files away.
    pub owners: bool,
    /// The things that [`crate::restore`] creates only on request: device nodes, set-user-ID and
    /// set-group-ID bits of files, and extended attributes other than `user.`
    pub privileged: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            owners: true,
            privileged: false,
        }
    }
}

/// The progress of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Names examined.
    pub names: u64,
    /// Bytes read from the folder, or from the log if there is no folder.
    pub bytes: u64,
    /// Names and bytes that differ.
    pub differences: u64,
}

impl Progress {
    /// The work done, in the unit of [`Rolling::work`].
    pub fn work(&self) -> u64 {
        self.bytes
            .saturating_add(self.names.saturating_mul(NAME_COST))
    }

    /// Adds the progress before a comparison was restarted to that `now`.
    fn join(&self, now: &Self) -> Self {
        Self {
            names: self.names.max(now.names),
            bytes: self.bytes + now.bytes,
            differences: now.differences,
        }
    }
}

/// Receives the progress and decides whether to continue.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress) -> ControlFlow<()>;

/// The summary of a whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub hash: Hash,
    /// The epoch of the log. `None` for a folder.
    pub epoch: Option<u64>,
    pub names: u64,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error("what the log leaves out: {0}")]
    Patterns(#[from] patterns::Error),
    #[error("{}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{}: making the tree: {cause}", .path.display())]
    Make { path: PathBuf, cause: io::Error },
    #[error(
        "{} has room for {has} bytes and {names} more files, and the tree takes {needs} and {files}: \
         name another place",
        .path.display()
    )]
    Room {
        path: PathBuf,
        has: u64,
        names: u64,
        needs: u64,
        files: u64,
    },
    #[error("{} is in {}, which is read: name another place", .path.display(), .inside.display())]
    Inside { path: PathBuf, inside: PathBuf },
    #[error("the log has no tree: nothing was written to it yet")]
    Nothing,
    #[error("{}: {why}; a hash needs a tree that rests and can be read", .path.display())]
    Undecided { path: PathBuf, why: String },
    #[error("ended before it was done: nothing is known of the whole tree")]
    Ended,
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Log(error) if error.is_of_folder() => ErrorClass::Input,
            Self::Log(log::Error::NoEpoch { .. } | log::Error::Damaged { .. })
            | Self::Patterns(_)
            | Self::Io { .. }
            | Self::Room { .. }
            | Self::Inside { .. }
            | Self::Nothing => ErrorClass::Input,
            Self::Log(_) | Self::Make { .. } | Self::Undecided { .. } | Self::Ended => {
                ErrorClass::Failed
            }
        }
    }
}

/// Compares a folder with the tree of an epoch of the log, by default the last one.
///
/// # Errors
/// Fails if the log is damaged or the folder itself cannot be read. Files within the folder that
/// cannot be read are reported as undecided.
pub fn verify(
    folder: &Path,
    epoch: Option<u64>,
    against: &Path,
    scope: Scope,
    watch: Watch<'_>,
) -> Result<Verdict, Error> {
    let (epoch, state) = state(folder, epoch)?;
    let filter = Filter::new(state.tree.patterns())?;
    let roots = (folder, against);
    let verdict = compare(&state, roots, (scope, filter), &NameSelection::All, watch)?;
    Ok(Verdict { epoch, ..verdict })
}

fn compare(
    state: &State,
    (folder, against): (&Path, &Path),
    (scope, filter): (Scope, Filter),
    wanted: &NameSelection,
    watch: Watch<'_>,
) -> Result<Verdict, Error> {
    let log = OfLog::new(&state.tree, &state.contents, scope);
    let there = OfFolder::new(against, scope, filter);
    let mut compare = Compare::new(log, there, (folder, against), scope, watch);
    compare.run(wanted)?;
    let OfFolder {
        mounted, left_out, ..
    } = compare.there.side;
    Ok(Verdict {
        mounted,
        left_out,
        stale: Stale::of(&state.tree),
        ..compare.verdict()
    })
}

/// Computes the hash of the tree of an epoch of the log, by default the last one.
///
/// # Errors
/// Fails if the log is damaged; [`Error::Ended`].
pub fn hash_log(
    folder: &Path,
    epoch: Option<u64>,
    scope: Scope,
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let (epoch, state) = state(folder, epoch)?;
    let log = OfLog::new(&state.tree, &state.contents, scope);
    let mut compare = Compare::new(log, Nobody, (folder, folder), scope, watch);
    compare.hash()?;
    compare.summary(Some(epoch))
}

/// Computes the hash of a folder's tree, without the names that these patterns exclude.
///
/// # Errors
/// Fails if something cannot be read; [`Error::Undecided`], [`Error::Ended`].
pub fn hash_folder(
    folder: &Path,
    patterns: &Patterns,
    scope: Scope,
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let there = OfFolder::new(folder, scope, Filter::new(patterns)?);
    let mut compare = Compare::new(there, Nobody, (folder, folder), scope, watch);
    compare.hash()?;
    compare.summary(None)
}

/// The patterns of the log as of its last epoch.
///
/// # Errors
/// Fails if the log is damaged.
pub fn patterns(folder: &Path) -> Result<Patterns, Error> {
    let mut reader = Reader::open_log(folder)?;
    let (mut now, mut last) = (Patterns::default(), Patterns::default());
    while let Some(located) = reader.read()? {
        match located.record.entry {
            Entry::Start { .. } => now = Patterns::default(),
            Entry::Patterns(patterns) => now = patterns,
            Entry::Epoch { .. } => last.clone_from(&now),
            Entry::Source(_)
            | Entry::Term(_)
            | Entry::Renumber { .. }
            | Entry::Barrier
            | Entry::Stale { .. }
            | Entry::Change(_) => {}
        }
    }
    Ok(last)
}

fn state(folder: &Path, epoch: Option<u64>) -> Result<(u64, State), Error> {
    let epoch = match epoch {
        Some(epoch) => epoch,
        None => last_epoch(folder)?,
    };
    Ok((epoch, State::read(folder, epoch)?))
}
