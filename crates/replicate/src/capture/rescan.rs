//! Takes up a log that a capture has left: what the source has become since is found by comparing all
//! of it with what the log says, and only what differs is said.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Capture, Error, Listener};
use crate::contents::{Contents, Source};
use crate::log::{self, Reader};
use crate::record::{Change, File, Kind, Origin};
use crate::tree::Tree;

/// What is compared at once, in bytes.
const BLOCK: u64 = 64 << 10;

/// What a log says, read to its end.
#[derive(Debug)]
pub struct Known {
    pub(super) tree: Tree,
    pub(super) contents: Contents,
}

/// What it took to take up a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescan {
    /// Files of all kinds that were compared with what the log says of them.
    pub files: u64,
    /// Files that the log did not have, or of another kind.
    pub new: u64,
    /// Files that the log had, and the tree does not.
    pub gone: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that the log did not have so: those of new files among them.
    pub differed: u64,
    /// Only files were compared that a journal has noted.
    pub journal: bool,
}

/// What the log says of files, while it is compared with them.
#[derive(Debug)]
pub(super) struct Comparison {
    contents: Contents,
    source: Source,
    /// Files that were said to be new, or gone, since.
    new: u64,
    gone: u64,
}

impl Known {
    /// Folds all records. Nobody may write the log any more, or only who asks.
    ///
    /// # Errors
    /// What is wrong with the log.
    pub fn read(folder: &Path) -> Result<Self, log::Error> {
        let mut reader = Reader::open(folder)?;
        let (mut tree, mut contents) = (Tree::default(), Contents::default());
        while let Some(located) = reader.read()? {
            let folded = tree.fold(&located.record);
            folded.map_err(|invalid| log::Error::Invalid {
                folder: folder.to_owned(),
                invalid,
            })?;
            contents.follow(&located);
        }
        Ok(Self { tree, contents })
    }
}

impl Comparison {
    pub(super) fn new(contents: Contents) -> Self {
        Self {
            contents,
            source: Source::default(),
            new: 0,
            gone: 0,
        }
    }

    /// From now on the log says something else.
    pub(super) fn overtaken(&mut self, change: &Change) {
        match change {
            Change::New { .. } => self.new += 1,
            Change::Gone { .. } => self.gone += 1,
            _ => {}
        }
        self.contents.forget(change);
    }
}

impl Capture {
    /// Compares the tree with the one that the log says, from its root down.
    pub(super) fn rescan(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        let Some(root) = self.deriver.tree.root() else {
            return Ok(());
        };
        let mut seen = BTreeSet::from([root]);
        let mut unread = vec![root];
        self.compare(root, listener)?;
        while let Some(directory) = unread.pop() {
            let Some(entries) = self.deriver.list(directory)? else {
                self.deriver.gone(directory);
                continue;
            };
            let names = entries.iter().map(|(name, _)| name.clone()).collect();
            self.forget_missing(directory, &names);
            self.find(&entries)?;
            for (name, file) in entries {
                if seen.insert(file) && self.compare(file, listener)? == Some(Kind::Directory) {
                    unread.push(file);
                }
                let there = self.deriver.tree.get(file).is_some();
                if there && self.deriver.tree.child(directory, &name) != Some(file) {
                    self.deriver.link(directory, name, file);
                }
            }
            self.pass_on(listener)?;
        }
        // No name in the tree leads to them: what happens to them is not told any more.
        let files = self.deriver.tree.files().map(|(file, _)| file);
        let left: Vec<_> = files.filter(|file| !seen.contains(file)).collect();
        for file in left {
            self.deriver.gone(file);
        }
        Ok(())
    }

    /// Says what of a file is not as the log has it. None where it is gone.
    fn compare(&mut self, file: File, listener: &mut dyn Listener) -> Result<Option<Kind>, Error> {
        let Some(node) = self.deriver.tree.get(file) else {
            return self.adopt(file, listener);
        };
        let known = node.kind.clone();
        self.rescanned(|rescan| rescan.files += 1);
        let kind = match self.deriver.source.stat(file)? {
            Some(stat) => self.deriver.source.kind(file, &stat)?,
            None => None,
        };
        let Some(kind) = kind else {
            self.deriver.gone(file);
            return Ok(None);
        };
        if kind != known {
            // The inode was used again while nobody watched, even with the same generation.
            self.deriver.replaced(file);
            return self.adopt(file, listener);
        }
        // Stores from here on are seen, as those are to what is adopted.
        if kind == Kind::Regular {
            self.deriver.clean_range(file, 0, u64::MAX)?;
        }
        self.deriver.source.wait(file, &kind)?;
        let Some(stat) = self.deriver.source.stat(file)? else {
            self.deriver.gone(file);
            return Ok(None);
        };
        self.read_attributes(file, &stat)?;
        if kind == Kind::Regular {
            self.read_range(file, (0, u64::MAX), listener)?;
        }
        self.pass_on(listener)?;
        Ok(Some(kind))
    }

    /// Says bytes that were read, but for blocks that the log is known to have so.
    pub(super) fn say_read(
        &mut self,
        file: File,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        let Some(comparison) = &mut self.deriver.comparison else {
            self.say_bytes(file, offset, bytes);
            return Ok(());
        };
        let length = bytes.len() as u64;
        let mut differ: Vec<(u64, u64)> = Vec::new();
        let mut at = offset;
        while at < offset + length {
            let end = (at - at % BLOCK + BLOCK).min(offset + length);
            let block = part(&bytes, at - offset, end - offset);
            let Comparison {
                contents, source, ..
            } = comparison;
            if !contents.says(source, file, at, block)? {
                match differ.last_mut() {
                    Some((_, to)) if *to == at => *to = end,
                    _ => differ.push((at, end)),
                }
            }
            at = end;
        }
        self.rescanned(|rescan| {
            rescan.bytes += length;
            rescan.differed += differ.iter().map(|(from, to)| to - from).sum::<u64>();
        });
        if differ == [(offset, offset + length)] {
            self.say_bytes(file, offset, bytes);
            return Ok(());
        }
        for (from, to) in differ {
            let said = part(&bytes, from - offset, to - offset).to_vec();
            self.say_bytes(file, from, said);
        }
        Ok(())
    }

    /// Whether the log is known to have this hole.
    pub(super) fn knows_hole(&self, file: File, offset: u64, length: u64) -> bool {
        let known = self.deriver.comparison.as_ref();
        known.is_some_and(|known| known.contents.says_hole(file, offset, offset + length))
    }

    fn say_bytes(&mut self, file: File, offset: u64, bytes: Vec<u8>) {
        self.progress.read_back += bytes.len() as u64;
        self.deriver.say(Change::Data {
            file,
            offset,
            bytes,
            origin: Origin::ReadBack,
        });
    }

    /// The log has all of the tree.
    pub(super) fn compared(&mut self) {
        if let Some(Comparison { new, gone, .. }) = self.deriver.comparison.take() {
            self.rescanned(|rescan| (rescan.new, rescan.gone) = (new, gone));
        }
    }

    pub(super) fn rescanned(&mut self, count: impl FnOnce(&mut Rescan)) {
        if let Some(rescan) = &mut self.progress.rescan {
            count(rescan);
        }
    }
}

fn part(bytes: &[u8], from: u64, to: u64) -> &[u8] {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    bytes.get(at(from)..at(to)).unwrap_or_default()
}
