//! Rebuilds the tree of an epoch from the log alone, in a temporary folder. Compares it with the
//! log and with another folder, so that the rebuilding code is checked as well.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::fs::{self, CWD, OFlags};

use super::compare::Compare;
use super::name_selection::NameSelection;
use super::of_folder::OfFolder;
use super::report::Verdict;
use super::{Error, Progress, Scope, Watch, compare, state};
use crate::apply::wipe::wipe;
use crate::make::{Gate, Maker};
use crate::patterns::Filter;
use crate::restore::{self, SharedProgress, State, empty_directory, fill_telling};
use crate::space::{Allocation, Space};

/// How often the watcher is asked whether to continue while the tree is built.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The tree is being built.
    Making,
    /// The tree is being compared with the log.
    Log,
    /// The tree is being compared with the other folder.
    Against,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// Names created below the root, and bytes written.
    pub names: u64,
    pub bytes: u64,
    /// The comparison of the log with the rebuilt tree, which is the folder in its differences.
    pub log: Verdict,
    /// The comparison of the rebuilt tree, which is the log in its differences, with the other
    /// folder. `None` if there is no other folder, or the comparison ended before.
    pub against: Option<Verdict>,
}

impl Rebuilt {
    /// Whether every byte and name is known to be the same everywhere.
    pub fn equal(&self) -> bool {
        self.log.equal() && self.against.as_ref().is_none_or(Verdict::equal)
    }
}

/// Rebuilds the tree of an epoch, by default the last one, in a new folder in `within`. Compares it
/// with the log, and with the folder `against`. The new folder is removed in all cases.
///
/// # Errors
/// As [`super::verify`]; [`Error::Room`], [`Error::Inside`], [`Error::Make`], and [`Error::Ended`]
/// if the watcher ends it before the tree is built.
pub fn verify_rebuilt(
    folder: &Path,
    epoch: Option<u64>,
    (within, against): (&Path, Option<&Path>),
    scope: Scope,
    watch: &mut dyn FnMut(Step, &Progress) -> ControlFlow<()>,
) -> Result<Rebuilt, Error> {
    outside(within, [Some(folder), against])?;
    let (epoch, state) = state(folder, epoch)?;
    let filter = Filter::new(state.tree.patterns())?;
    room(&state, scope, within)?;
    let temporary = Temporary::new(within)?;
    let made = temporary.path.join("tree");
    let (names, bytes) = make(&state, &made, scope, &mut |now| watch(Step::Making, now))?;
    let on: Watch<'_> = &mut |now| watch(Step::Log, now);
    let made_of = (scope, Filter::default());
    let log = compare(&state, (folder, &made), made_of, &NameSelection::All, on)?;
    let against = match against {
        Some(against) if !log.partial => {
            let on: Watch<'_> = &mut |now| watch(Step::Against, now);
            let verdict = folders((&made, against), (scope, filter), on)?;
            Some(Verdict { epoch, ..verdict })
        }
        _ => None,
    };
    Ok(Rebuilt {
        names,
        bytes,
        log: Verdict { epoch, ..log },
        against,
    })
}

/// Checks that the new folder is outside of the folders that are read.
fn outside(within: &Path, read: [Option<&Path>; 2]) -> Result<(), Error> {
    let real = |path: &Path| path.canonicalize().map_err(failed(path));
    let place = real(within)?;
    for folder in read.into_iter().flatten() {
        if place.starts_with(real(folder)?) {
            return Err(Error::Inside {
                path: within.to_owned(),
                inside: folder.to_owned(),
            });
        }
    }
    Ok(())
}

/// Checks that there is enough space, as far as can be known in advance.
fn room(state: &State, scope: Scope, within: &Path) -> Result<(), Error> {
    let tree = (&state.tree, &state.contents);
    let needs = Space::of_tree(tree, Allocation::Plain, |kind| scope.has(kind));
    let opened = File::open(within).map_err(failed(within))?;
    let left = Space::available(&opened).map_err(failed(within))?;
    // The folder of the tree takes one more.
    let files = left.files.saturating_sub(1);
    match needs.fits(Space { files, ..left }) {
        true => Ok(()),
        false => Err(Error::Room {
            path: within.to_owned(),
            has: left.bytes,
            names: left.files,
            needs: needs.bytes,
            files: needs.files,
        }),
    }
}

/// Builds the tree and returns the number of names and bytes. A second thread builds, while this
/// one asks whether to continue.
fn make(state: &State, to: &Path, scope: Scope, watch: Watch<'_>) -> Result<(u64, u64), Error> {
    let (gate, told) = (Gate::closing_after(u64::MAX), SharedProgress::default());
    let mut maker = Maker::new(scope.privileged, gate.clone());
    let mut ended = false;
    let made = thread::scope(|scope| {
        let caller = thread::current();
        let (told, maker) = (&told, &mut maker);
        let making = scope.spawn(move || {
            let top = empty_directory(to);
            let made = top.and_then(|top| {
                fill_telling(&state.tree, &state.contents, (&top, to), maker, told)
            });
            caller.unpark();
            made
        });
        while !making.is_finished() {
            let now = Progress {
                names: told.names.load(Ordering::Relaxed),
                bytes: told.bytes.load(Ordering::Relaxed),
                differences: 0,
            };
            if !ended && watch(&now).is_break() {
                ended = true;
                gate.close();
            }
            thread::park_timeout(POLL_INTERVAL);
        }
        let made = making.join();
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if ended {
        return Err(Error::Ended);
    }
    match made {
        Ok(filled) => Ok((filled.names, maker.bytes)),
        Err(restore::Error::Log(error)) => Err(error.into()),
        Err(restore::Error::Io { path, cause }) => Err(Error::Make { path, cause }),
        Err(restore::Error::Occupied(path)) => {
            Err(failed(&path)(io::ErrorKind::AlreadyExists.into()))
        }
    }
}

fn folders(
    (made, against): (&Path, &Path),
    (scope, filter): (Scope, Filter),
    watch: Watch<'_>,
) -> Result<Verdict, Error> {
    let here = OfFolder::new(made, scope, Filter::default());
    let there = OfFolder::new(against, scope, filter);
    let mut compare = Compare::new(here, there, (made, against), scope, watch);
    compare.run(&NameSelection::All)?;
    let OfFolder {
        mounted, left_out, ..
    } = compare.there.side;
    Ok(Verdict {
        mounted,
        left_out,
        ..compare.verdict()
    })
}

/// A folder that only its owner can enter. It is removed with its contents on drop.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn new(within: &Path) -> Result<Self, Error> {
        loop {
            let name = format!(".lowroad-rebuild-{:08x}", fastrand::u32(..));
            let path = within.join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(Error::Io { path, cause }),
            }
        }
    }

    fn remove(&self) -> io::Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = fs::openat(CWD, OsStr::new(&self.path), flags, fs::Mode::empty())?;
        wipe(folder.as_fd(), &Gate::default())?;
        std::fs::remove_dir(&self.path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let path = self.path.display();
            tracing::warn!("{path}: {error}: it stays; remove it");
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::Io {
        path: path.to_owned(),
        cause,
    }
}
