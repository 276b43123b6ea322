//! Builds a few small files from the records, and compares them with the real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::record::{Change, Edit, Entry, File, Kind};
use crate::tree::{Node, Tree};

#[derive(Debug, Default)]
pub(super) struct Mirror {
    pub(super) tree: Tree,
    /// The bytes written so far. The tree has the sizes.
    contents: BTreeMap<File, Vec<u8>>,
}

impl Mirror {
    pub(super) fn fold(&mut self, entry: &Entry) {
        // A capture records nothing that cannot follow. If it did, the trees would differ.
        let _ = self.tree.enter(entry);
        let Entry::Change(change) = entry else {
            return;
        };
        if let Some((file, edit)) = change.edit() {
            self.edit(file, edit);
        } else if let Change::Gone { file } = change {
            self.contents.remove(file);
        }
    }

    fn edit(&mut self, file: File, edit: Edit<'_>) {
        let content = self.contents.entry(file).or_default();
        let (start, end) = edit.range();
        let [start, end] = [start, end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        match edit.bytes() {
            Some(bytes) => {
                if content.len() < end {
                    content.resize(end, 0);
                }
                if let Some(place) = content.get_mut(start..end) {
                    place.copy_from_slice(bytes);
                }
            }
            None => {
                let end = end.min(content.len());
                if let Some(zeros) = content.get_mut(start..end) {
                    zeros.fill(0);
                }
            }
        }
    }

    /// Whether the file agrees with the one at the path, including everything below it.
    pub(super) fn agrees(&self, file: File, path: &Path) -> bool {
        let (Some(node), Ok(there)) = (self.tree.get(file), path.symlink_metadata()) else {
            return false;
        };
        let modified = there.mtime() * 1_000_000_000 + there.mtime_nsec();
        let alike = node.attributes.is_some_and(|said| {
            u32::from(said.mode) == there.mode() & 0o7777
                && (said.uid, said.gid) == (there.uid(), there.gid())
                && said.modified_ns == modified
        });
        alike && self.extended(file, path) && self.holds(file, node, path, there.rdev())
    }

    fn extended(&self, file: File, path: &Path) -> bool {
        let said = self.tree.get(file).map(|node| &node.extended);
        let said = said.into_iter().flatten();
        let said: Vec<_> = said
            .filter(|(name, _)| name.starts_with(b"user."))
            .collect();
        let mut room = [0; 4096];
        let length = rustix::fs::llistxattr(path, room.as_mut_slice()).unwrap_or(0);
        let names = room.get(..length).unwrap_or_default();
        let names = names
            .split(|byte| *byte == 0)
            .filter(|name| name.starts_with(b"user."));
        let names: BTreeSet<_> = names.collect();
        let said_names: BTreeSet<_> = said.iter().map(|(name, _)| name.as_slice()).collect();
        names == said_names
            && said.iter().all(|(name, value)| {
                let mut room = [0; 4096];
                let length = rustix::fs::lgetxattr(path, name.as_slice(), room.as_mut_slice());
                length.is_ok_and(|length| room.get(..length) == Some(value.as_slice()))
            })
    }

    fn holds(&self, file: File, node: &Node, path: &Path, device: u64) -> bool {
        match &node.kind {
            Kind::Regular => {
                let mut said = self.contents.get(&file).cloned().unwrap_or_default();
                said.resize(usize::try_from(node.size).unwrap_or(0), 0);
                fs::read(path).is_ok_and(|there| there == said)
            }
            Kind::Directory => self.names(file, path),
            Kind::Symlink(target) => {
                fs::read_link(path).is_ok_and(|there| there.into_os_string().into_vec() == *target)
            }
            Kind::CharacterDevice(said) | Kind::BlockDevice(said) => *said == device,
            Kind::Fifo | Kind::Socket => true,
        }
    }

    fn names(&self, directory: File, path: &Path) -> bool {
        let Ok(entries) = fs::read_dir(path) else {
            return false;
        };
        let there: BTreeSet<_> = entries
            .flatten()
            .map(|entry| entry.file_name().into_vec())
            .collect();
        let said = self.tree.children(directory);
        let said: BTreeMap<_, _> = said
            .map(|(name, file)| (name.as_bytes().to_vec(), file))
            .collect();
        there.iter().eq(said.keys())
            && said.into_iter().all(|(name, file)| {
                let name = std::ffi::OsString::from_vec(name);
                self.agrees(file, &path.join(name))
            })
    }
}
