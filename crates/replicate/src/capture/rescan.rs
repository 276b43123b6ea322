//! Compares the whole tree with the log that is continued, and records the differences.

use std::collections::BTreeSet;

use super::file_reader::FileReader;
use super::listings::Listings;
use super::pipeline::Pipeline;
use super::{Error, Listener};
use crate::record::{File, Kind, Name};

/// One comparison, from the root down.
pub(super) struct TreeScan<'a> {
    reader: &'a mut FileReader,
    pipeline: &'a mut Pipeline,
    listener: &'a mut dyn Listener,
    /// Files that were compared.
    seen: BTreeSet<File>,
    /// Directories that have still to be read.
    unread: Vec<File>,
}

impl<'a> TreeScan<'a> {
    pub(super) fn new(
        reader: &'a mut FileReader,
        pipeline: &'a mut Pipeline,
        listener: &'a mut dyn Listener,
    ) -> Self {
        Self {
            reader,
            pipeline,
            listener,
            seen: BTreeSet::new(),
            unread: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        let Some(root) = self.pipeline.shadow.tree.root() else {
            return Ok(());
        };
        self.seen.insert(root);
        self.unread.push(root);
        self.compare(root)?;
        while let Some(directory) = self.unread.pop() {
            let Some(entries) = self.pipeline.shadow.list(directory)? else {
                self.pipeline.shadow.remove(directory);
                continue;
            };
            self.compare_names(directory, entries)?;
            self.pipeline.pass_on(self.listener)?;
        }
        // No name in the tree leads to these files, so their changes are not reported any more.
        let files = self.pipeline.shadow.tree.files().map(|(file, _)| file);
        let left: Vec<_> = files.filter(|file| !self.seen.contains(file)).collect();
        for file in left {
            self.pipeline.shadow.remove(file);
        }
        Ok(())
    }

    fn compare_names(&mut self, directory: File, entries: Vec<(Name, File)>) -> Result<(), Error> {
        let names = entries.iter().map(|(name, _)| name.clone()).collect();
        self.pipeline.shadow.unlink_missing(directory, &names);
        self.pipeline.reveal(&entries)?;
        for (name, file) in entries {
            if self.seen.insert(file) && self.compare(file)? == Some(Kind::Directory) {
                self.unread.push(file);
            }
            let shadow = &mut self.pipeline.shadow;
            let there = shadow.tree.get(file).is_some();
            if there && shadow.tree.child(directory, &name) != Some(file) {
                shadow.link(directory, name, file);
            }
        }
        Ok(())
    }

    /// Records the differences of a file from the log. `None` if the file is gone.
    fn compare(&mut self, file: File) -> Result<Option<Kind>, Error> {
        let shadow = &mut self.pipeline.shadow;
        let Some(node) = shadow.tree.get(file) else {
            return self.adopt(file);
        };
        let known = node.kind.clone();
        shadow.comparison.count_files(1);
        let kind = match shadow.source.stat(file)? {
            Some(stat) => shadow.source.kind(file, &stat)?,
            None => None,
        };
        let Some(kind) = kind else {
            shadow.remove(file);
            return Ok(None);
        };
        if kind != known {
            // The inode was reused while no capture was running, even with the same generation.
            shadow.replace(file);
            return self.adopt(file);
        }
        // Stores from here on are reported, as for adopted files.
        if kind == Kind::Regular {
            shadow.clean_range(file, 0, u64::MAX)?;
        }
        shadow.source.wait(file, &kind)?;
        let Some(stat) = shadow.source.stat(file)? else {
            shadow.remove(file);
            return Ok(None);
        };
        shadow.update_attributes(file, &stat, &Listings::default())?;
        if kind == Kind::Regular {
            let all = (0, u64::MAX);
            self.reader
                .read_range(file, all, self.pipeline, self.listener)?;
        }
        self.pipeline.pass_on(self.listener)?;
        Ok(Some(kind))
    }

    fn adopt(&mut self, file: File) -> Result<Option<Kind>, Error> {
        self.reader.adopt(file, self.pipeline, self.listener)
    }
}
