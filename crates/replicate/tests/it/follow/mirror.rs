//! A tree in memory, folded from records.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use replicate::record::{Change, Entry, File, Kind};
use replicate::tree::Tree;

use super::Naive;
use crate::bed::trees::{data, extended};

const PAGE: u64 = 4096;

#[derive(Debug, Default)]
pub(crate) struct Mirror {
    pub(crate) tree: Tree,
    contents: BTreeMap<File, Content>,
    /// What of the source it is to be.
    patterns: Naive,
}

/// The pages of a file that have something in them.
#[derive(Debug, Default)]
struct Content(BTreeMap<u64, Vec<u8>>);

impl Content {
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = usize::try_from(at % PAGE).unwrap();
            let page = self.0.entry(at / PAGE).or_insert_with(|| vec![0; 4096]);
            let count = rest.len().min(4096 - within);
            page[within..within + count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            at += count as u64;
        }
    }

    fn zero(&mut self, start: u64, end: u64) {
        let touched: Vec<_> = self
            .0
            .range(start / PAGE..)
            .map(|(page, _)| *page)
            .collect();
        for page in touched {
            let first = page * PAGE;
            let (from, to) = (start.max(first), end.min(first + PAGE));
            if from == first && to == first + PAGE {
                self.0.remove(&page);
            } else if from < to {
                let at = |offset| usize::try_from(offset - first).unwrap();
                self.0.get_mut(&page).unwrap()[at(from)..at(to)].fill(0);
            }
        }
    }

    fn compare(&self, path: &Path) {
        let source = data(path);
        let zeros = vec![0; 4096];
        for (start, bytes) in &source {
            for (index, there) in bytes.chunks(4096).enumerate() {
                let page = start / PAGE + index as u64;
                let said = self.0.get(&page).unwrap_or(&zeros);
                let first = there.iter().zip(said).position(|(a, b)| a != b);
                assert!(
                    first.is_none(),
                    "{path:?} differs at {first:?} of page {page}"
                );
            }
        }
        let has = |page: u64| {
            source
                .iter()
                .any(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&(page * PAGE)))
        };
        for (page, bytes) in &self.0 {
            let nothing = bytes.iter().all(|byte| *byte == 0);
            assert!(nothing || has(*page), "page {page} of {path:?} is a hole");
        }
    }
}

impl Mirror {
    pub(crate) fn of(patterns: Naive) -> Self {
        Self {
            patterns,
            ..Self::default()
        }
    }

    /// Folds an entry. Every entry must be able to follow.
    pub(crate) fn fold(&mut self, entry: &Entry) {
        self.tree
            .enter(entry)
            .unwrap_or_else(|invalid| panic!("{invalid}: {entry:?}"));
        match entry {
            Entry::Start { .. } => self.contents.clear(),
            Entry::Change(change) => self.change(change),
            Entry::Epoch { .. }
            | Entry::Source(_)
            | Entry::Patterns(_)
            | Entry::Barrier
            | Entry::Term(_)
            | Entry::Renumber { .. }
            | Entry::Stale { .. } => {}
        }
    }

    fn change(&mut self, change: &Change) {
        if let Some((file, edit)) = change.edit() {
            let content = self.contents.entry(file).or_default();
            let (start, end) = edit.range();
            match edit.bytes() {
                Some(bytes) => content.put(start, bytes),
                None => content.zero(start, end),
            }
        } else if let Change::Gone { file } = change {
            self.contents.remove(file);
        }
    }

    /// Compares everything below `root` with the recorded state.
    ///
    /// # Panics
    /// At the first difference, with its path.
    pub(crate) fn compare(&self, root: &Path) {
        let mut inodes = BTreeMap::new();
        let mut files = BTreeSet::new();
        let mut unseen = vec![(root.to_owned(), self.tree.root().unwrap())];
        while let Some((path, file)) = unseen.pop() {
            files.insert(file);
            let before = inodes.insert(file, fs::symlink_metadata(&path).unwrap().ino());
            let inode = inodes[&file];
            assert!(
                before.is_none_or(|before| before == inode),
                "{path:?} is another file"
            );
            self.compare_file(&path, file);
            if self.tree.get(file).unwrap().kind != Kind::Directory {
                continue;
            }
            let below = path.strip_prefix(root).unwrap();
            let children = self.children(&path, below, file);
            unseen.extend(children);
        }
        let known: BTreeSet<_> = self.tree.files().map(|(file, _)| file).collect();
        let open: Vec<_> = known.difference(&files).collect();
        for file in open {
            let names = &self.tree.get(*file).unwrap().names;
            assert!(names.is_empty(), "{file} is said to be at {names:?}");
        }
    }

    fn children(&self, path: &Path, below: &Path, directory: File) -> Vec<(PathBuf, File)> {
        let source: BTreeSet<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| {
                let directory = entry.file_type().unwrap().is_dir();
                self.patterns
                    .admits(&below.join(entry.file_name()), directory)
            })
            .map(|entry| entry.file_name().into_vec())
            .collect();
        let said: BTreeMap<_, _> = self
            .tree
            .children(directory)
            .map(|(name, file)| (name.as_bytes().to_vec(), file))
            .collect();
        let names: BTreeSet<_> = said.keys().cloned().collect();
        let text = |names: &BTreeSet<Vec<u8>>, others: &BTreeSet<Vec<u8>>| {
            let only = names.difference(others);
            only.map(|name| String::from_utf8_lossy(name).into_owned())
                .collect::<Vec<_>>()
        };
        assert!(
            names == source,
            "{path:?}: only in the source {:?}, only in the records {:?}",
            text(&source, &names),
            text(&names, &source)
        );
        said.into_iter()
            .map(|(name, file)| (path.join(OsStr::from_bytes(&name)), file))
            .collect()
    }

    fn compare_file(&self, path: &Path, file: File) {
        let node = self.tree.get(file).unwrap();
        let metadata = fs::symlink_metadata(path).unwrap();
        let attributes = node.attributes.unwrap();
        assert_eq!(
            u32::from(attributes.mode),
            metadata.mode() & 0o7777,
            "mode of {path:?}"
        );
        assert_eq!(attributes.uid, metadata.uid(), "owner of {path:?}");
        assert_eq!(attributes.gid, metadata.gid(), "group of {path:?}");
        let modified = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
        assert_eq!(attributes.modified_ns, modified, "time of {path:?}");
        // What the oracle leaves out, a layer's own file system has.
        let mut said = node.extended.clone();
        said.retain(|(name, _)| !name.starts_with(b"trusted.overlay."));
        let extended = extended(path);
        assert_eq!(said, extended, "extended attributes of {path:?}");
        match &node.kind {
            Kind::Regular => {
                assert_eq!(node.size, metadata.size(), "size of {path:?}");
                let none = Content::default();
                let said = self.contents.get(&file).unwrap_or(&none);
                said.compare(path);
            }
            Kind::Directory => assert!(metadata.is_dir(), "{path:?}"),
            Kind::Symlink(target) => {
                let source = fs::read_link(path).unwrap();
                assert_eq!(source.as_os_str().as_bytes(), target, "{path:?}");
            }
            Kind::Fifo => assert_eq!(metadata.mode() & 0o170_000, 0o010_000, "{path:?}"),
            Kind::Socket => assert_eq!(metadata.mode() & 0o170_000, 0o140_000, "{path:?}"),
            Kind::CharacterDevice(device) | Kind::BlockDevice(device) => {
                assert_eq!(metadata.rdev(), *device, "{path:?}");
            }
        }
    }
}
