//! Says what is in doubt as the source has it now.

use std::collections::BTreeSet;

use nix::fcntl::OFlag;
use nix::sys::stat::FileStat;

use super::derive::Deriver;
use super::doubt::Doubt;
use super::source::{Stretch, attributes_of};
use super::{Capture, Error, Listener};
use crate::record::{Change, File, Kind, Name, Part};

/// As much of a file as one record says.
const PIECE: u64 = 256 << 10;

impl Capture {
    /// Reads what of a file is in doubt.
    pub(super) fn read(
        &mut self,
        file: File,
        doubt: &Doubt,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let Some(node) = self.deriver.tree.get(file) else {
            return Ok(());
        };
        let kind = node.kind.clone();
        let vague = !self.deriver.source.format().exact();
        if vague {
            // Once its time was asked for, each write from then on gives it another, however soon: one that begins when
            // nobody is waited for any more is told.
            self.deriver.source.stat(file)?;
        }
        self.deriver.source.wait(file, &kind)?;
        let Some(stat) = self.deriver.source.stat(file)? else {
            return self.vanished(file);
        };
        // Nobody tells when its last user leaves it. Where it gets a name, that directory is read.
        if vague && stat.st_nlink == 0 && Some(file) != self.deriver.tree.root() {
            self.deriver.gone(file);
            return Ok(());
        }
        if !self.deriver.recognise(file, &stat)? {
            return Ok(());
        }
        if doubt.attributes || !doubt.ranges.is_empty() {
            self.read_attributes(file, &stat)?;
        }
        match kind {
            Kind::Directory if doubt.names => self.read_names(file, listener)?,
            Kind::Regular => {
                for range in &doubt.ranges {
                    self.read_range(file, *range, listener)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// It is gone, or called otherwise by now: ext4 can give a file another generation, and says nothing of its names.
    fn vanished(&mut self, file: File) -> Result<(), Error> {
        let deriver = &mut self.deriver;
        if deriver.source.format().exact() {
            for (directory, name) in deriver.held(file) {
                if deriver.source.inode_of(directory, &name)? == Some(file.inode) {
                    deriver.doubt(directory, Part::Names);
                }
            }
        }
        deriver.gone(file);
        Ok(())
    }

    pub(super) fn read_attributes(&mut self, file: File, stat: &FileStat) -> Result<(), Error> {
        let Some(node) = self.deriver.tree.get(file) else {
            return Ok(());
        };
        let attributes = attributes_of(stat);
        let (kind, known) = (node.kind.clone(), node.attributes);
        // Those that a listing lacks will be taken away.
        let listed = |(directory, name): &&(File, Name)| match self.listed.get(directory) {
            Some(names) => names.contains(name),
            None => true,
        };
        let names = node.names.iter().filter(listed).count() as u64;
        let deriver = &mut self.deriver;
        if kind == Kind::Regular {
            deriver.size(file, u64::try_from(stat.st_size).unwrap_or(0));
        }
        if known != Some(attributes) {
            deriver.say(Change::Attributes { file, attributes });
        }
        if let Some(all) = deriver.source.extended(file)?
            && deriver
                .tree
                .get(file)
                .is_some_and(|node| node.extended != all)
        {
            deriver.say(Change::Extended { file, all });
        }
        if kind != Kind::Directory && names > stat.st_nlink {
            for (directory, _) in deriver.held(file) {
                deriver.doubt(directory, Part::Names);
            }
        }
        Ok(())
    }

    fn read_names(&mut self, directory: File, listener: &mut dyn Listener) -> Result<(), Error> {
        let mut unread = vec![directory];
        while let Some(directory) = unread.pop() {
            let Some(entries) = self.deriver.list(directory)? else {
                self.deriver.gone(directory);
                continue;
            };
            let names = entries.iter().map(|(name, _)| name.clone()).collect();
            if self.deriver.filter.is_empty() {
                self.listed.insert(directory, names);
            } else {
                self.forget_missing(directory, &names);
            }
            self.find(&entries)?;
            for (name, file) in entries {
                if self.deriver.tree.child(directory, &name) == Some(file) {
                    continue;
                }
                self.deriver.returned(file);
                if self.deriver.tree.get(file).is_none() {
                    let Some(kind) = self.adopt(file, listener)? else {
                        continue;
                    };
                    if kind == Kind::Directory {
                        unread.push(file);
                    }
                }
                self.deriver.link(directory, name, file);
            }
            self.pass_on(listener)?;
        }
        Ok(())
    }

    /// What the programs take for outside of the tree is not told of, and about to be read.
    pub(super) fn find(&mut self, entries: &[(Name, File)]) -> Result<(), Error> {
        let Deriver { tree, strayed, .. } = &self.deriver;
        let known = |file: &File| tree.get(*file).is_some() && !strayed.contains(file);
        if self.deriver.source.has_outside() && !entries.iter().all(|(_, file)| known(file)) {
            self.programs.found()?;
        }
        Ok(())
    }

    /// Takes away names that a directory does not have any more. Where others are read as well, those come first: else what
    /// has moved from one to another would have no name meanwhile.
    pub(super) fn forget_missing(&mut self, directory: File, names: &BTreeSet<Name>) {
        let deriver = &mut self.deriver;
        let missing: Vec<_> = deriver
            .tree
            .children(directory)
            .filter(|(name, _)| !names.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in missing {
            deriver.unlink(directory, &name);
        }
    }

    /// Says all of a file that was not in the tree, its names apart. None where it is gone.
    pub(super) fn adopt(
        &mut self,
        file: File,
        listener: &mut dyn Listener,
    ) -> Result<Option<Kind>, Error> {
        let Deriver { source, .. } = &self.deriver;
        let Some(stat) = source.stat(file)? else {
            return Ok(None);
        };
        let Some(kind) = source.kind(file, &stat)? else {
            return Ok(None);
        };
        // Of who writes to it just now, nothing was told that is of use.
        source.wait(file, &kind)?;
        let Some(stat) = source.stat(file)? else {
            return Ok(None);
        };
        self.deriver.say(Change::New {
            file,
            kind: kind.clone(),
        });
        self.read_attributes(file, &stat)?;
        if kind == Kind::Regular {
            self.deriver.clean_range(file, 0, u64::MAX)?;
            self.read_range(file, (0, u64::MAX), listener)?;
        }
        Ok(Some(kind))
    }

    pub(super) fn read_range(
        &mut self,
        file: File,
        range: (u64, u64),
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let Some(opened) = self.deriver.source.file(file, OFlag::O_RDONLY)? else {
            return Ok(());
        };
        for stretch in self.deriver.source.stretches(file, &opened, range)? {
            let (offset, length) = match stretch {
                Stretch::Data { offset, length } => (offset, length),
                Stretch::Hole { offset, length } => {
                    if !self.knows_hole(file, offset, length) {
                        self.deriver.say(Change::Hole {
                            file,
                            offset,
                            length,
                        });
                    }
                    continue;
                }
            };
            let mut done = 0;
            while done < length {
                let piece = usize::try_from(PIECE.min(length - done)).unwrap_or(usize::MAX);
                let bytes = self
                    .deriver
                    .source
                    .read(file, &opened, offset + done, piece)?;
                if bytes.is_empty() {
                    break;
                }
                let at = offset + done;
                let length = bytes.len() as u64;
                done += length;
                self.say_read(file, at, bytes)?;
                self.pass_on(listener)?;
                self.pace(length, listener)?;
            }
        }
        Ok(())
    }
}
