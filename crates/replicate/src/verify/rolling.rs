//! Compares a tree that is being followed with its log, piece by piece, for as long as the caller
//! wants. An inequality is examined again. It counts as a difference if the name has not changed
//! meanwhile and the log must contain its last change.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::live::{changed_since, moved_since};
use super::name_selection::NameSelection;
use super::report::{Difference, Verdict, What};
use super::{Error, NAME_COST, Progress, Scope, Watch, compare};
use crate::log::Reader;
use crate::patterns::Filter;
use crate::record::{Entry, File, Kind, Name};
use crate::restore::State;
use crate::tree::Tree;

/// The log contains every change that is older than its sync point by this much.
const QUIET: Duration = Duration::from_secs(2);
/// How many times something must differ, with the log brought up to date in between.
const LOOKS: u32 = 3;
/// A name that still changes after this time is left to the next round.
const REST_TIMEOUT: Duration = Duration::from_secs(60);
/// The most names that are examined again. Further ones are left to the next round.
const MAX_RECHECKS: usize = 10_000;
/// How many records of the log are read between two calls of the watcher.
const POLL_INTERVAL: u64 = 1024;

/// A point in time at which the log contained everything that had happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncPoint {
    /// The log's last epoch at that time.
    pub epoch: u64,
    pub at: SystemTime,
}

/// A name with a difference that has stopped changing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// The path below the root, empty for the root.
    pub path: PathBuf,
    pub all: Vec<Difference>,
}

/// The result of examining a piece.
#[derive(Debug, Default)]
pub struct RoundReport {
    pub names: u64,
    pub bytes: u64,
    /// New differences. Each is reported once in a round.
    pub differing: Vec<Differing>,
    /// Names that differed before, and now agree with the log.
    pub mended: Vec<PathBuf>,
    /// Names that differed before and still do.
    pub left: Vec<PathBuf>,
    /// Names that did not stop changing. The next round examines them again.
    pub undecided: u64,
    /// The whole tree was examined. The next piece begins with its root.
    pub round: bool,
    /// The watcher ended it.
    pub ended: bool,
}

/// A tree and its log, and the progress of their comparison.
#[derive(Debug)]
pub struct Rolling {
    log: PathBuf,
    tree: PathBuf,
    scope: Scope,
    /// The tree may have names that the log excludes. A replica has none.
    source: bool,
    reader: Reader,
    state: State,
    epoch: u64,
    /// The last path that was examined in this round.
    reached: Option<Vec<u8>>,
    open: BTreeMap<Vec<u8>, Open>,
}

/// A name that was not equal and is examined again.
#[derive(Debug)]
struct Open {
    since: SystemTime,
    looked: SystemTime,
    looks: u32,
    /// It was reported as different.
    said: bool,
}

impl Rolling {
    /// Opens the source of the log, or a replica.
    ///
    /// # Errors
    /// [`Error::Log`]
    pub fn open(log: &Path, tree: &Path, scope: Scope, source: bool) -> Result<Self, Error> {
        Ok(Self {
            log: log.to_owned(),
            tree: tree.to_owned(),
            scope,
            source,
            reader: Reader::open(log)?,
            state: State::default(),
            epoch: 0,
            reached: None,
            open: BTreeMap::new(),
        })
    }

    /// Reads the log up to this epoch. Returns false if the watcher ended it.
    ///
    /// # Errors
    /// [`Error::Log`]
    pub fn follow(&mut self, epoch: u64, watch: Watch<'_>) -> Result<bool, Error> {
        let mut records = 0_u64;
        while self.epoch < epoch {
            let Some(located) = self.reader.read()? else {
                break;
            };
            self.state.follow(&self.log, &located)?;
            if let Entry::Epoch { number } = located.record.entry {
                self.epoch = number;
            }
            records += 1;
            if records.is_multiple_of(POLL_INTERVAL) && watch(&Progress::default()).is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The work of a round, in bytes read. Each name counts as a fixed number of bytes.
    pub fn work(&self) -> u64 {
        let files = self.state.tree.files();
        files
            .map(|(_, node)| node.size.saturating_add(NAME_COST))
            .sum()
    }

    /// Whether some names have to be examined again.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Examines the next piece, which takes about this much work.
    ///
    /// # Errors
    /// [`Error::Log`], or [`Error::Io`] for the root.
    pub fn look(
        &mut self,
        caught: SyncPoint,
        work: u64,
        watch: Watch<'_>,
    ) -> Result<RoundReport, Error> {
        if !self.follow(caught.epoch, watch)? {
            return Ok(RoundReport::end());
        }
        let after = self.reached.take();
        let (tree, path) = (&self.state.tree, after.as_deref());
        let to = boundary(tree, path, work);
        let wanted = NameSelection::Between {
            after: after.clone(),
            enter: path.is_some_and(|path| way_to(tree, path).is_some_and(|way| way.1)),
            to: to.clone(),
        };
        let at = SystemTime::now();
        let verdict = self.compare(&wanted, watch)?;
        if verdict.partial {
            self.reached = after;
            return Ok(RoundReport::end());
        }
        let mut looked = RoundReport {
            names: verdict.names,
            bytes: verdict.bytes,
            round: to.is_none(),
            undecided: verdict.unlisted(),
            ..RoundReport::default()
        };
        self.reached = to;
        for path in unequal(&verdict).into_keys() {
            if self.open.len() < MAX_RECHECKS {
                self.open.entry(path).or_insert(Open {
                    since: at,
                    looked: at,
                    looks: 1,
                    said: false,
                });
            } else {
                looked.undecided += 1;
            }
        }
        Ok(looked)
    }

    /// Examines again the names that were not equal, if the log may have caught up since.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn look_again(
        &mut self,
        caught: SyncPoint,
        watch: Watch<'_>,
    ) -> Result<RoundReport, Error> {
        let at = SystemTime::now();
        let before = caught
            .at
            .checked_sub(QUIET)
            .unwrap_or(SystemTime::UNIX_EPOCH);
        let old = |open: &Open| {
            at.duration_since(open.since)
                .is_ok_and(|age| age > REST_TIMEOUT)
        };
        let due = |open: &Open| open.looked < before || old(open);
        let paths = self.open.iter().filter(|(_, open)| due(open));
        let paths: BTreeSet<_> = paths.map(|(path, _)| path.clone()).collect();
        if paths.is_empty() {
            return Ok(RoundReport::default());
        }
        if !self.follow(caught.epoch, watch)? {
            return Ok(RoundReport::end());
        }
        let wanted = NameSelection::Only(paths);
        let verdict = self.compare(&wanted, watch)?;
        if verdict.partial {
            return Ok(RoundReport::end());
        }
        let NameSelection::Only(paths) = wanted else {
            return Ok(RoundReport::default());
        };
        let mut looked = RoundReport {
            bytes: verdict.bytes,
            ..RoundReport::default()
        };
        // A name may differ without being listed.
        let known = verdict.unlisted() == 0;
        let mut unequal = unequal(&verdict);
        for path in paths {
            let Some(open) = self.open.get_mut(&path) else {
                continue;
            };
            let name = PathBuf::from(OsStr::from_bytes(&path));
            let Some(all) = unequal.remove(&path).or_else(|| (!known).then(Vec::new)) else {
                looked.mended.extend(open.said.then_some(name));
                self.open.remove(&path);
                continue;
            };
            let rests = !all.is_empty() && !self.tree_changed(&name, &all, before);
            let Some(open) = self.open.get_mut(&path) else {
                continue;
            };
            // A name that has changed starts again.
            open.looks = if rests { open.looks + 1 } else { 0 };
            open.looked = at;
            if open.looks >= LOOKS && !open.said {
                (open.said, open.since) = (true, at);
                looked.differing.push(Differing { path: name, all });
            } else if old(open) {
                match open.said {
                    true => looked.left.push(name),
                    false => looked.undecided += 1,
                }
                self.open.remove(&path);
            }
        }
        Ok(looked)
    }

    fn compare(&self, wanted: &NameSelection, watch: Watch<'_>) -> Result<Verdict, Error> {
        let roots = (self.log.as_path(), self.tree.as_path());
        let filter = match self.source {
            true => Filter::new(self.state.tree.patterns())?,
            false => Filter::default(),
        };
        compare(&self.state, roots, (self.scope, filter), wanted, watch)
    }

    fn tree_changed(&self, path: &Path, all: &[Difference], since: SystemTime) -> bool {
        let there = self.tree.join(path);
        // The name is back, or something is mounted on it.
        let missing = all.iter().any(|one| one.what == What::Missing);
        if missing && there.symlink_metadata().is_ok() {
            return true;
        }
        // Adding or removing a name changes the directory.
        let named = all.iter().any(|one| {
            let names = [What::Missing, What::Extra, What::Kind, What::Target];
            names.contains(&one.what)
        });
        // A path through another directory led to another file.
        let mut above = path.ancestors().skip(1);
        if above.any(|one| one.parent().is_some() && moved_since(&self.tree.join(one), since)) {
            return true;
        }
        let parent = there.parent().filter(|_| named);
        changed_since(&there, since) || parent.is_some_and(|parent| changed_since(parent, since))
    }
}

impl RoundReport {
    fn end() -> Self {
        Self {
            ended: true,
            ..Self::default()
        }
    }
}

/// The differences of each name, without undecided ones. Which names belong to one file is known
/// only if all names are compared.
fn unequal(verdict: &Verdict) -> BTreeMap<Vec<u8>, Vec<Difference>> {
    let mut all: BTreeMap<Vec<u8>, Vec<Difference>> = BTreeMap::new();
    for one in &verdict.differences {
        if one.what != What::Links {
            let path = one.path.as_os_str().as_bytes().to_vec();
            all.entry(path).or_default().push(one.clone());
        }
    }
    for one in &verdict.undecided {
        let path = one.path.as_os_str().as_bytes().to_vec();
        all.insert(path, Vec::new());
    }
    all
}

/// A directory and the last of its names that has been passed.
type LateName = (File, Option<Name>);

/// The directories from the root to a path, as far as it exists, and whether the path is a
/// directory.
fn way_to(tree: &Tree, path: &[u8]) -> Option<(Vec<LateName>, bool)> {
    let mut way = vec![(tree.root()?, None)];
    let names = path.split(|byte| *byte == b'/');
    for name in names.filter_map(|name| Name::new(name).ok()) {
        let (directory, last) = way.last_mut()?;
        let below = tree.child(*directory, &name);
        *last = Some(name);
        match below.filter(|file| is_directory(tree, *file)) {
            Some(file) => way.push((file, None)),
            None => return Some((way, false)),
        }
    }
    Some((way, true))
}

/// The path up to which examining everything after another path takes this much work. `None` if
/// less is left.
fn boundary(tree: &Tree, after: Option<&[u8]>, work: u64) -> Option<Vec<u8>> {
    let (mut way, _) = way_to(tree, after.unwrap_or_default())?;
    let mut left = work.max(1);
    while let Some((directory, last)) = way.last_mut() {
        let Some((name, file)) = tree.next_child(*directory, last.as_ref()) else {
            way.pop();
            continue;
        };
        *last = Some(name.clone());
        let size = tree.get(file).map_or(0, |node| node.size);
        if is_directory(tree, file) {
            way.push((file, None));
        }
        left = left.saturating_sub(size.saturating_add(NAME_COST));
        if left == 0 {
            let names = way.iter().filter_map(|(_, last)| last.as_ref());
            return Some(names.map(Name::as_bytes).collect::<Vec<_>>().join(&b'/'));
        }
    }
    None
}

fn is_directory(tree: &Tree, file: File) -> bool {
    tree.get(file)
        .is_some_and(|node| node.kind == Kind::Directory)
}
