//! Compares a tree with the log that follows it while both change.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::name_selection::NameSelection;
use super::report::{Verdict, What};
use super::{Error, Progress, Scope, Watch, compare};
use crate::log::{self, Reader};
use crate::patterns::Filter;
use crate::record::Entry;
use crate::restore::State;

/// A log that was not written between two passes has every change that is at least this old.
const QUIET: Duration = Duration::from_secs(2);
/// The time between two passes.
const BETWEEN: Duration = Duration::from_millis(500);
/// How often the watcher is asked whether to continue while nothing is compared.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Compares the tree itself with the last epoch of its log. Names that changed recently are
/// compared again with the next epoch, for at most `patience`, and are then undecided. A difference
/// counts if the name has not changed for two seconds, or for `patience` if the log is being
/// written, because it may be behind.
///
/// # Errors
/// As [`super::verify`].
pub fn verify_live(
    folder: &Path,
    against: &Path,
    scope: Scope,
    patience: Duration,
    watch: Watch<'_>,
) -> Result<Verdict, Error> {
    let since = Instant::now();
    let mut before = Progress::default();
    let mut wanted = NameSelection::All;
    let mut latest = Latest::open(folder)?;
    latest.advance()?;
    // Whether the log was written since the previous pass. Before the first pass this is unknown.
    let mut written = true;
    loop {
        let looked = SystemTime::now();
        let roots = (folder, against);
        let compared = (scope, Filter::new(latest.state.tree.patterns())?);
        let mut verdict = compare(&latest.state, roots, compared, &wanted, &mut |progress| {
            watch(&before.join(progress))
        })?;
        verdict.epoch = latest.epoch;
        written |= latest.advance()?;
        let rested = if written { QUIET.max(patience) } else { QUIET };
        let rests = looked.checked_sub(rested);
        let again = fresh(&verdict, against, rests.unwrap_or(SystemTime::UNIX_EPOCH));
        let last = again.is_empty() || verdict.partial || since.elapsed() >= patience;
        if last || pause(&before, watch).is_break() {
            verdict.partial |= !last;
            leave_open(&mut verdict, &again);
            // The first pass examined every name, and later ones only some of them again.
            verdict.names = before.names.max(verdict.names);
            verdict.bytes += before.bytes;
            verdict.hashes = verdict.hashes.filter(|_| before == Progress::default());
            return Ok(verdict);
        }
        before = Progress {
            names: before.names.max(verdict.names),
            bytes: before.bytes + verdict.bytes,
            differences: 0,
        };
        wanted = next(&verdict);
        written = latest.advance()?;
    }
}

/// The tree of the log's last epoch, kept up to date.
struct Latest<'a> {
    folder: &'a Path,
    reader: Reader,
    /// Looks ahead: a record is followed only when the epoch that contains it is complete.
    scout: Reader,
    state: State,
    epoch: u64,
}

impl<'a> Latest<'a> {
    fn open(folder: &'a Path) -> Result<Self, log::Error> {
        let reader = Reader::open_log(folder)?;
        Ok(Self {
            folder,
            scout: reader.clone(),
            reader,
            state: State::default(),
            epoch: 0,
        })
    }

    /// Reads the log further. Returns whether anything was written since the last call.
    fn advance(&mut self) -> Result<bool, log::Error> {
        let (mut any, mut last) = (false, self.epoch);
        while let Some(located) = self.scout.read()? {
            any = true;
            if let Entry::Epoch { number } = located.record.entry {
                last = number;
            }
        }
        while self.epoch < last {
            let Some(located) = self.reader.read()? else {
                break;
            };
            self.state.follow(self.folder, &located)?;
            if let Entry::Epoch { number } = located.record.entry {
                self.epoch = number;
            }
        }
        Ok(any)
    }
}

/// The names that are not equal and have changed so recently that the log may not have the change
/// yet.
fn fresh(verdict: &Verdict, against: &Path, since: SystemTime) -> BTreeSet<Vec<u8>> {
    let differing = verdict.differences.iter().filter(|one| {
        let path = against.join(&one.path);
        // Adding or removing a name changes the directory.
        let parent = match one.what {
            What::Missing | What::Extra | What::Kind | What::Links | What::Target => path.parent(),
            _ => None,
        };
        let mut paths = [Some(path.as_path()), parent].into_iter().flatten();
        paths.any(|path| changed_since(path, since))
    });
    let undecided = verdict.undecided.iter().map(|one| &one.path);
    let paths = differing.map(|one| &one.path).chain(undecided);
    paths.map(|path| bytes(path)).collect()
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

pub(super) fn changed_since(path: &Path, since: SystemTime) -> bool {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        // The time of the parent shows whether the name was removed just now. If the parent was
        // removed as well, its own parent also differs.
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    changed(&metadata) > since
}

/// Whether a directory was moved since. This cannot be seen if something in it was changed after
/// the move, which changes both times.
pub(super) fn moved_since(directory: &Path, since: SystemTime) -> bool {
    let Ok(metadata) = directory.symlink_metadata() else {
        return true;
    };
    let changed = changed(&metadata);
    changed > since
        && metadata
            .modified()
            .is_ok_and(|modified| modified != changed)
}

fn changed(metadata: &Metadata) -> SystemTime {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}

/// Selects what to compare again: every name that is not equal. Other names of a file, unlisted
/// differences, and changes at the root require a comparison of all names.
fn next(verdict: &Verdict) -> NameSelection {
    let listed = verdict.unlisted() == 0;
    let links = |what| what == What::Links;
    let root = |path: &Path| path.as_os_str().is_empty();
    let renamed = verdict.undecided.iter().any(|one| root(&one.path));
    if !listed || renamed || verdict.differences.iter().any(|one| links(one.what)) {
        return NameSelection::All;
    }
    let differing = verdict.differences.iter().map(|one| &one.path);
    let undecided = verdict.undecided.iter().map(|one| &one.path);
    let paths = differing.chain(undecided);
    NameSelection::Below(paths.map(|path| bytes(path)).collect())
}

/// Reports recently changed names as undecided.
fn leave_open(verdict: &mut Verdict, fresh: &BTreeSet<Vec<u8>>) {
    let open = |path: &Path| fresh.contains(&bytes(path));
    let listed = verdict.differences.len() as u64;
    verdict.differences.retain(|one| !open(&one.path));
    verdict.differing -= listed - verdict.differences.len() as u64;
    let known = verdict.undecided.iter().map(|one| bytes(&one.path));
    let known: BTreeSet<_> = known.collect();
    for path in fresh.difference(&known) {
        verdict.undecide(path, "it changed a moment ago".to_owned());
    }
}

fn pause(progress: &Progress, watch: Watch<'_>) -> ControlFlow<()> {
    let since = Instant::now();
    while since.elapsed() < BETWEEN {
        watch(progress)?;
        thread::sleep(POLL_INTERVAL);
    }
    ControlFlow::Continue(())
}
