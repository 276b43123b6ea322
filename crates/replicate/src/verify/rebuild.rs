//! Makes the tree of an epoch from the log alone, in a folder that does not stay, and compares it with
//! what the log says, and with another folder: whoever makes a tree of a log is looked at, too.

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

/// Between two questions to who watches, while the tree is made.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The tree is made.
    Making,
    /// It is compared with the log.
    Log,
    /// It is compared with the other folder.
    Against,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// Names below the root that were made, and bytes that were written.
    pub names: u64,
    pub bytes: u64,
    /// The log's tree and the one that was made of it: in its differences that is the folder.
    pub log: Verdict,
    /// The one that was made and the other folder: in its differences what was made is the log. None where
    /// there is no other folder, or the end came before.
    pub against: Option<Verdict>,
}

impl Rebuilt {
    /// Every byte and name is the same everywhere, and that is known.
    pub fn equal(&self) -> bool {
        self.log.equal() && self.against.as_ref().is_none_or(Verdict::equal)
    }
}

/// Makes the tree of an epoch, or of the last one, in a new folder in `within`, and compares it with the
/// log, and with the folder `against`. The new folder is removed, whatever comes.
///
/// # Errors
/// As [`super::verify`]; [`Error::Room`], [`Error::Inside`], [`Error::Make`], and [`Error::Ended`] where the
/// end comes before the tree is made.
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

/// What is made while something is read must not be a part of that.
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

/// Whether there is room, as far as that shows before.
fn room(state: &State, scope: Scope, within: &Path) -> Result<(), Error> {
    let tree = (&state.tree, &state.contents);
    let needs = Space::of_tree(tree, Allocation::Plain, |kind| scope.has(kind));
    let opened = File::open(within).map_err(failed(within))?;
    let left = Space::available(&opened).map_err(failed(within))?;
    // The folder of the tree is one more.
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

/// How many names and bytes it has. Another thread makes it, and this one asks whether to go on.
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

/// A folder that nobody else can enter, removed with all that is in it.
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
