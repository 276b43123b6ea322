//! The maps shared with the BPF programs, with the types of their keys and values.

use std::io;
use std::path::Path;

use bpf::{Map, bytes_of};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapMut};

use super::Error;
use super::skel::{CaptureMaps, Plain, types};
use crate::record::File;

/// The key of an array's only value.
const KEY: u32 = 0;

/// A variable of the programs in a section of its own.
pub(super) type Variable = Map<u32, u64>;
/// The programs' answers about files, by the number of the question.
pub(super) type Answers = Map<u64, types::answer>;

/// All maps except the rings.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) counters: CounterMap,
    pub(super) lost: FileSet,
    pub(super) period: Variable,
    pub(super) found: Variable,
    pub(super) answers: Answers,
    pub(super) turn: Variable,
    pub(super) even: FileSet,
    pub(super) odd: FileSet,
    pub(super) label: LabelMap,
}

/// The counters of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    /// The number of the next event.
    pub(super) next: u64,
    pub(super) dropped: u64,
    /// Dropped events whose file is unknown as well.
    pub(super) forgotten: u64,
    /// Files that did not fit into a pinned journal.
    pub(super) overlooked: u64,
    /// Operations under way.
    pub(super) operations: u64,
}

/// The map of the programs' counters.
#[derive(Debug)]
pub(super) struct CounterMap(PinnableMap<u32, types::bss>);

/// A map with files as its keys.
#[derive(Debug)]
pub(super) struct FileSet(PinnableMap<types::file_key, u32>);

/// The map of a journal's label.
#[derive(Debug)]
pub(super) struct LabelMap(PinnableMap<u32, types::label>);

/// A typed map, and a handle for operations that typed maps lack: pinning and removing many keys at
/// once.
#[derive(Debug)]
struct PinnableMap<K, V> {
    typed: Map<K, V>,
    handle: MapHandle,
}

impl Maps {
    /// Creates handles that outlive the skeleton.
    pub(super) fn new(maps: &CaptureMaps<'_>) -> Result<Self, bpf::Error> {
        Ok(Self {
            counters: CounterMap(PinnableMap::new(&maps.bss)?),
            lost: FileSet(PinnableMap::new(&maps.lost)?),
            period: Map::new(&maps.data_period)?,
            found: Map::new(&maps.data_found)?,
            answers: Map::new(&maps.answers)?,
            turn: Map::new(&maps.data_turn)?,
            even: FileSet(PinnableMap::new(&maps.even_turns)?),
            odd: FileSet(PinnableMap::new(&maps.odd_turns)?),
            label: LabelMap(PinnableMap::new(&maps.label)?),
        })
    }
}

/// Writes a variable of the programs.
pub(super) fn set(variable: &Variable, value: u64) -> Result<(), bpf::Error> {
    variable.set(&KEY, &value)
}

impl CounterMap {
    /// Opens the map that is pinned at this path.
    pub(super) fn open(path: &Path) -> Option<Self> {
        PinnableMap::open(path).map(Self)
    }

    pub(super) fn pin(&self, path: &Path) -> Result<(), libbpf_rs::Error> {
        self.0.pin(path)
    }

    pub(super) fn read(&self) -> Result<Counters, Error> {
        let counters = self.0.typed.get(&KEY);
        let counters = counters.map_err(Error::bpf("reading the counters"))?;
        let counters = counters.ok_or(Error::Unknown)?;
        if counters.unwatched != 0 {
            let many = "more than 65536 files of the overlay are mapped to be stored to";
            return Err(Error::io("watching stores")(io::Error::other(many)));
        }
        Ok(Counters {
            next: counters.next_number,
            dropped: counters.dropped,
            forgotten: counters.forgotten,
            overlooked: counters.overlooked,
            operations: counters.operations,
        })
    }
}

impl FileSet {
    /// Opens the map that is pinned at this path.
    pub(super) fn open(path: &Path) -> Option<Self> {
        PinnableMap::open(path).map(Self)
    }

    pub(super) fn try_clone(&self) -> Result<Self, bpf::Error> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn pin(&self, path: &Path) -> Result<(), libbpf_rs::Error> {
        self.0.pin(path)
    }

    pub(super) fn files(&self) -> Vec<File> {
        let files = self.0.typed.keys().map(|key| File {
            inode: key.inode,
            generation: key.generation,
        });
        files.collect()
    }

    pub(super) fn insert(&self, file: File) -> Result<(), bpf::Error> {
        self.0.typed.set(&key_of(file), &1)
    }

    pub(super) fn remove(&self, file: File) -> Result<(), bpf::Error> {
        self.0.typed.remove(&key_of(file))
    }

    /// Removes all files. No program may change the map meanwhile.
    pub(super) fn clear(&self) -> Result<(), libbpf_rs::Error> {
        let keys: Vec<_> = self.0.typed.keys().collect();
        let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        if count == 0 {
            return Ok(());
        }
        let (keys, any) = (bytes_of(&keys), MapFlags::ANY);
        self.0.handle.delete_batch(keys, count, any, any)
    }
}

impl LabelMap {
    /// Opens the map that is pinned at this path.
    pub(super) fn open(path: &Path) -> Option<Self> {
        PinnableMap::open(path).map(Self)
    }

    pub(super) fn try_clone(&self) -> Result<Self, bpf::Error> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn pin(&self, path: &Path) -> Result<(), libbpf_rs::Error> {
        self.0.pin(path)
    }

    /// The text of the label, up to the first zero byte.
    pub(super) fn read(&self) -> Option<Vec<u8>> {
        let label = self.0.typed.get(&KEY).ok()??;
        let text = label.text.split(|byte| *byte == 0).next();
        text.map(<[u8]>::to_vec)
    }

    pub(super) fn write(&self, text: &[u8]) -> Result<(), Error> {
        let mut label = types::label::default();
        let Some(place) = label.text.get_mut(..text.len()) else {
            return Err(Error::io("a label")(io::ErrorKind::InvalidFilename.into()));
        };
        place.copy_from_slice(text);
        let written = self.0.typed.set(&KEY, &label);
        written.map_err(Error::bpf("writing the journal"))
    }
}

impl<K: Plain, V: Plain> PinnableMap<K, V> {
    fn new(map: &MapMut<'_>) -> Result<Self, bpf::Error> {
        let typed = Map::new(map)?;
        let handle = MapHandle::try_from(map).map_err(bpf::Error::of("keeping a map"))?;
        Ok(Self { typed, handle })
    }

    fn open(path: &Path) -> Option<Self> {
        let open = || MapHandle::from_pinned_path(path).ok();
        Some(Self {
            typed: Map::from_handle(open()?).ok()?,
            handle: open()?,
        })
    }

    fn try_clone(&self) -> Result<Self, bpf::Error> {
        let handle = MapHandle::try_from(&self.handle);
        Ok(Self {
            typed: self.typed.try_clone()?,
            handle: handle.map_err(bpf::Error::of("keeping a map"))?,
        })
    }

    /// Pins the map to a file of a BPF file system.
    fn pin(&self, path: &Path) -> Result<(), libbpf_rs::Error> {
        MapHandle::try_from(&self.handle)?.pin(path)
    }
}

/// The key that the programs use for a file.
fn key_of(file: File) -> types::file_key {
    types::file_key {
        inode: file.inode,
        generation: file.generation,
        zero: 0,
    }
}
