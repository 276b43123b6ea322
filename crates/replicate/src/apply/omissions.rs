//! Names of the source that the replica's file system cannot hold: too many links, names or sizes
//! beyond its limits, unsupported kinds of files. They are stored, so that a later run does not
//! take them for names that somebody removed. They are tried again at each start.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::plan::Directory;
use crate::folder::Folder;
use crate::record::{File, Name, Renumbering};
use crate::tree::Tree;

const FILE: &str = "omissions";
const TEMPORARY: &str = "omissions.tmp";
const MAGIC: [u8; 8] = *b"lromits1";
const CHECK: usize = 4;
/// How many omissions of a step are named in warnings.
const MAX_WARNINGS: u64 = 20;

pub(super) type Entry = (Directory, Name);

/// The omissions of a replica.
#[derive(Clone, Debug, Default)]
pub(super) struct Omissions {
    entries: BTreeSet<Entry>,
    /// How many were added in the step.
    added: u64,
}

impl Omissions {
    /// The omissions of a newly built tree.
    pub(super) fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        let entries: BTreeSet<Entry> = entries.into_iter().collect();
        let added = entries.len() as u64;
        Self { entries, added }
    }

    /// Reads the file. A missing or incomplete file lists no omissions. The names then count as
    /// missing, and `--repair` tries them again.
    pub(super) fn read(folder: &Folder) -> io::Result<Self> {
        let mut bytes = Vec::new();
        match folder.file(FILE, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file?.read_to_end(&mut bytes)?,
        };
        Ok(Self {
            entries: decode(&bytes).unwrap_or_default(),
            added: 0,
        })
    }

    /// Returns when the file is on the disk.
    pub(super) fn write(&self, folder: &Folder) -> io::Result<()> {
        if self.entries.is_empty() {
            folder.remove(FILE)?;
            return folder.sync();
        }
        let mut file = folder.replace(TEMPORARY)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        folder.rename(TEMPORARY, FILE)?;
        folder.sync()
    }

    /// Applies a renumbering of files.
    pub(super) fn renumber(&mut self, all: &Renumbering) {
        let entries = std::mem::take(&mut self.entries).into_iter();
        let name = |file: File| all.get(file).unwrap_or(file);
        self.entries = entries
            .map(|(directory, called)| (directory.map(name), called))
            .collect();
    }

    pub(super) fn has(&self, entry: &Entry) -> bool {
        self.entries.contains(entry)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.entries == other.entries
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Begins a step.
    pub(super) fn begin(&mut self) {
        self.added = 0;
    }

    /// How many names were added in the step.
    pub(super) fn added(&self) -> u64 {
        self.added
    }

    /// Adds a name that the file system refuses, and logs a warning unless it was known `before`.
    pub(super) fn add(&mut self, entry: Entry, before: &Self, path: &Path, errno: Errno) {
        let known = before.has(&entry);
        if self.entries.insert(entry) && !known {
            self.added += 1;
            if self.added <= MAX_WARNINGS {
                let path = path.display();
                tracing::warn!("{path}: {errno}: the file system cannot hold it; it is left out");
            }
        }
    }

    /// Adds everything below an omitted directory.
    pub(super) fn add_below(&mut self, tree: &Tree, directory: File, before: &Self) {
        let mut left = vec![directory];
        while let Some(directory) = left.pop() {
            for (name, file) in tree.children(directory) {
                let entry = (Some(directory), name.clone());
                let known = before.has(&entry);
                self.added += u64::from(self.entries.insert(entry) && !known);
                left.push(file);
            }
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        self.entries.remove(entry);
    }

    /// Removes names that the source no longer has.
    pub(super) fn retain(&mut self, tree: &Tree) {
        self.entries.retain(|(directory, name)| {
            let directory = directory.or_else(|| tree.root());
            directory.is_some_and(|directory| tree.child(directory, name).is_some())
        });
    }

    /// The files that have these names.
    pub(super) fn files(&self, tree: &Tree) -> BTreeSet<File> {
        let file = |(directory, name): &Entry| tree.child(directory.or_else(|| tree.root())?, name);
        self.entries.iter().filter_map(file).collect()
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (directory, name) in &self.entries {
            let File { inode, generation } = directory.unwrap_or(File {
                inode: 0,
                generation: 0,
            });
            bytes.push(u8::from(directory.is_some()));
            bytes.extend(inode.to_le_bytes());
            bytes.extend(generation.to_le_bytes());
            let length = u16::try_from(name.as_bytes().len()).unwrap_or_default();
            bytes.extend(length.to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }
}

/// Returns `None` if the file is incomplete.
fn decode(bytes: &[u8]) -> Option<BTreeSet<Entry>> {
    let (said, check) = bytes.split_last_chunk::<CHECK>()?;
    if crc32c::crc32c(said) != u32::from_le_bytes(*check) {
        return None;
    }
    let mut rest = said.strip_prefix(&MAGIC)?;
    let mut entries = BTreeSet::new();
    while let Some((known, more)) = rest.split_first() {
        let (inode, more) = more.split_first_chunk::<8>()?;
        let (generation, more) = more.split_first_chunk::<4>()?;
        let (length, more) = more.split_first_chunk::<2>()?;
        let (name, more) = more.split_at_checked(u16::from_le_bytes(*length).into())?;
        let file = File {
            inode: u64::from_le_bytes(*inode),
            generation: u32::from_le_bytes(*generation),
        };
        entries.insert(((*known != 0).then_some(file), Name::new(name).ok()?));
        rest = more;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let name = |name: &[u8]| Name::new(name).unwrap();
        let file = File {
            inode: 7,
            generation: 8,
        };
        let left = Omissions {
            entries: BTreeSet::from([
                (None, name(b"a\nb")),
                (Some(file), name(&[0xff; 255])),
                (Some(file), name(b"x")),
            ]),
            added: 0,
        };
        let bytes = left.encode();
        assert_eq!(decode(&bytes), Some(left.entries));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "{end}");
        }
    }
}
