//! Performs the file operations of programs on a tree's own file system under a capture, and
//! reports how much of each the capture sees.

mod mirror;
mod operations;
mod passing;
mod place;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datapath::{Classify, ErrorClass, Missing};

use crate::capture::{self, Capture, Options};
use crate::record::{Change, Entry, File, Name, Origin, Part};
use mirror::Mirror;
use operations::{Fixture, OPERATIONS, Operation};
use place::Place;

/// The size of the ring for the events of one operation, in bytes.
const RING: u32 = 4 << 20;
/// Longer than a busy machine takes for one operation.
const LIMIT: Duration = Duration::from_secs(30);

/// How a capture sees an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Completely when it takes place. Nothing is read from the source.
    Exact,
    /// Where it takes place, but not all of the data. The data is read back.
    Suspect,
    /// Only that the file changes. The whole file is read back.
    Dirty,
    /// It is not seen at all.
    Invisible,
    /// The file system does not support the operation.
    Unsupported,
}

/// The result for one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub operation: &'static str,
    pub verdict: Verdict,
    /// The kernel hooks that reported it.
    pub hooks: Vec<&'static str>,
    /// Why it is not supported.
    pub cause: Option<String>,
}

/// The results for a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub file_system: &'static str,
    pub rows: Vec<Row>,
}

/// The results that a capture needs before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quick {
    /// Operations that are not seen at all.
    pub invisible: Vec<&'static str>,
    /// Whether written bytes are copied during the write, as is normal on this file system if the
    /// kernel's memory has the expected layout. `None` if this file system never allows it.
    pub copies: Option<bool>,
}

/// Why nothing could be tested.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Capture(#[from] capture::Error),
    #[error("{}: cannot make a folder to try operations in: {cause}", .path.display())]
    Place { path: PathBuf, cause: io::Error },
    #[error("{operation}: no epoch within {} s", LIMIT.as_secs())]
    Late { operation: &'static str },
}

impl Error {
    /// Names the directory that the user has given, instead of the folder in it.
    fn in_directory(mut self, directory: &Path) -> Self {
        use capture::Error as Capture;
        if let Self::Capture(
            Capture::Tree { path, .. }
            | Capture::Moved(path)
            | Capture::FileSystem { path, .. }
            | Capture::Read { path, .. },
        ) = &mut self
        {
            directory.clone_into(path);
        }
        self
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Capture(error) => error.class(),
            Self::Place { .. } => ErrorClass::Input,
            Self::Late { .. } => ErrorClass::Failed,
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        match self {
            Self::Capture(error) => error.missing(),
            Self::Place { .. } | Self::Late { .. } => Vec::new(),
        }
    }
}

/// Tests each operation separately, in a hidden folder of the directory that is removed afterwards.
///
/// # Errors
/// [`Error`] if the directory cannot be written or followed.
pub fn probe(directory: &Path) -> Result<Report, Error> {
    let probed = probe_all(directory);
    probed.map_err(|error| error.in_directory(directory))
}

fn probe_all(directory: &Path) -> Result<Report, Error> {
    let mut trial = Trial::start(directory)?;
    let mut rows = Vec::new();
    for index in 0..OPERATIONS.len() {
        if let Some(row) = trial.one(index)? {
            rows.push(row);
        }
    }
    Ok(Report {
        file_system: trial.capture.file_system(),
        rows,
    })
}

/// Tests all operations at once, as [`probe`] does, and returns those that are not seen.
///
/// # Errors
/// As [`probe`].
pub fn quick(directory: &Path) -> Result<Quick, Error> {
    let tried = try_all(directory);
    tried.map_err(|error| error.in_directory(directory))
}

fn try_all(directory: &Path) -> Result<Quick, Error> {
    let mut trial = Trial::start(directory)?;
    let mut done = Vec::new();
    for (index, operation) in OPERATIONS.iter().enumerate() {
        let result = trial.carry_out(index, operation);
        done.push((index, operation, result.is_ok()));
    }
    let entries = trial.catch_up("all operations")?;
    let exact = entries.iter().any(|entry| {
        matches!(
            entry,
            Entry::Change(Change::Data {
                origin: Origin::Exact,
                ..
            })
        )
    });
    let missed = done
        .into_iter()
        .filter(|(index, _, done)| *done && !trial.is_reported(*index));
    Ok(Quick {
        invisible: missed.map(|(_, operation, _)| operation.name).collect(),
        copies: trial.capture.copies().then_some(exact),
    })
}

/// A folder for the tests and a capture that follows it.
#[derive(Debug)]
struct Trial {
    capture: Capture,
    mirror: Mirror,
    prepared: Vec<Option<Fixture>>,
    /// Dropped last, after the capture has ended.
    place: Place,
}

impl Trial {
    fn start(directory: &Path) -> Result<Self, Error> {
        let place = Place::make(directory)?;
        let mut prepared = Vec::new();
        for index in 0..OPERATIONS.len() {
            let folder = place.folder(index);
            let ready = operations::prepare(&folder).map_err(|cause| Error::Place {
                path: directory.to_owned(),
                cause,
            })?;
            prepared.push(Some(ready));
        }
        let options = Options {
            ring_bytes: RING,
            ..Options::default()
        };
        let mut trial = Self {
            capture: Capture::attach(place.path(), options)?,
            mirror: Mirror::default(),
            prepared,
            place,
        };
        trial.catch_up("what is there")?;
        Ok(trial)
    }

    fn one(&mut self, index: usize) -> Result<Option<Row>, Error> {
        let Some(operation) = OPERATIONS.get(index) else {
            return Ok(None);
        };
        self.capture.take_hooks();
        let (verdict, cause) = match self.carry_out(index, operation) {
            Ok(()) => {
                let entries = self.catch_up(operation.name)?;
                let verdict = if self.is_reported(index) {
                    judge(&entries)
                } else {
                    Verdict::Invisible
                };
                (verdict, None)
            }
            Err(error) => {
                self.catch_up(operation.name)?;
                (Verdict::Unsupported, Some(error.to_string()))
            }
        };
        let mut hooks = self.capture.take_hooks();
        if matches!(verdict, Verdict::Unsupported | Verdict::Invisible) {
            hooks.clear();
        }
        Ok(Some(Row {
            operation: operation.name,
            verdict,
            hooks,
            cause,
        }))
    }

    fn carry_out(&mut self, index: usize, operation: &Operation) -> io::Result<()> {
        let prepared = self.prepared.get_mut(index).and_then(Option::take);
        let mut prepared = prepared.ok_or(io::ErrorKind::NotFound)?;
        (operation.carry_out)(&self.place.folder(index), &mut prepared)
    }

    fn catch_up(&mut self, operation: &'static str) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        let mirror = &mut self.mirror;
        let whole = self.capture.catch_up(LIMIT, &mut |entry| {
            mirror.fold(&entry);
            entries.push(entry);
        })?;
        whole.then_some(entries).ok_or(Error::Late { operation })
    }

    /// Whether the records of an operation's folder agree with its contents.
    fn is_reported(&self, index: usize) -> bool {
        let Ok(name) = Name::new(Place::name(index).as_bytes()) else {
            return false;
        };
        let root = self.mirror.tree.root();
        let folder: Option<File> = root.and_then(|root| self.mirror.tree.child(root, &name));
        folder.is_some_and(|folder| self.mirror.agrees(folder, &self.place.folder(index)))
    }
}

/// Judges an operation by the parts of files that were in doubt.
fn judge(entries: &[Entry]) -> Verdict {
    let parts = entries.iter().filter_map(|entry| match entry {
        Entry::Change(Change::Doubt { part, .. }) => Some(part),
        _ => None,
    });
    let mut verdict = Verdict::Exact;
    for part in parts {
        match part {
            Part::Range {
                length: u64::MAX, ..
            } => return Verdict::Dirty,
            Part::Range { .. } | Part::Attributes | Part::Names => verdict = Verdict::Suspect,
        }
    }
    verdict
}
