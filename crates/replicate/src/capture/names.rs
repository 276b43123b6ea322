//! Names that files get and lose.

use std::collections::BTreeSet;

use super::derive::Deriver;
use super::event::State;
use crate::record::{Change, File, Kind, Name, Part};

impl Deriver {
    /// A directory is outside of the tree now, and with it what has no other name.
    pub(super) fn leave(&mut self, directory: File) {
        let mut left = vec![directory];
        while let Some(file) = left.pop() {
            let inside: Vec<_> = self.tree.children(file).map(|(_, child)| child).collect();
            self.gone(file);
            left.extend(
                inside
                    .into_iter()
                    .filter(|child| self.held(*child).is_empty()),
            );
        }
    }

    /// It is not there any more, and nothing is in it.
    pub(super) fn gone(&mut self, file: File) {
        self.source.forget(file);
        self.replaced(file);
    }

    /// What is there is another with the same number.
    pub(super) fn replaced(&mut self, file: File) {
        self.fresh.remove(&file);
        self.strayed.remove(&file);
        self.outside.remove(&file);
        if self.tree.get(file).is_none() {
            return;
        }
        for (directory, name) in self.held(file) {
            self.unlink(directory, &name);
        }
        let children: Vec<_> = self
            .tree
            .children(file)
            .map(|(name, _)| name.clone())
            .collect();
        for name in children {
            self.unlink(file, &name);
        }
        self.doubts.remove(&file);
        self.mapped.remove(&file);
        self.say(Change::Gone { file });
    }

    pub(super) fn held(&self, file: File) -> BTreeSet<(File, Name)> {
        let node = self.tree.get(file);
        node.map(|node| node.names.clone()).unwrap_or_default()
    }

    pub(super) fn unlink(&mut self, directory: File, name: &Name) {
        if let Some(file) = self.tree.child(directory, name) {
            self.say(Change::Unlink {
                directory,
                name: name.clone(),
            });
            self.loses_a_name(file);
            self.strays(file);
        }
    }

    /// The file has lost this name, or one that differs in case, where that is ignored: it is told as it was asked for.
    pub(super) fn unlinked(&mut self, file: File, directory: File, name: &Name) {
        let named = self.tree.child(directory, name);
        if named == Some(file) {
            self.unlink(directory, name);
        } else if self.is(directory, &Kind::Directory)
            && (named.is_some() || self.tree.get(file).is_some())
        {
            self.doubt(directory, Part::Names);
        }
    }

    pub(super) fn link(&mut self, directory: File, name: Name, file: File) {
        self.free(directory, file);
        let before = self.tree.child(directory, &name);
        let moves = self.moves(file);
        self.say(Change::Link {
            directory,
            name,
            file,
        });
        if let Some(before) = before {
            self.loses_a_name(before);
        }
        if moves {
            self.reconsider(file);
        }
    }

    fn loses_a_name(&mut self, file: File) {
        if self.source.holds() || !self.filter.is_empty() || self.source.has_outside() {
            self.nameless.insert(file);
        }
    }

    /// Without a name the file may be outside of the tree, where nobody tells what becomes of it.
    pub(super) fn strays(&mut self, file: File) {
        if self.source.has_outside() && self.held(file).is_empty() {
            self.strayed.insert(file);
            self.nameless.insert(file);
        }
    }

    /// Takes away the names of what is outside of the tree by now: it may be back before its directories are read, and has
    /// to be read as well then.
    pub(super) fn has_left(&mut self, file: File, state: &State) {
        if self.tree.get(file).is_none() || Some(file) == self.tree.root() {
            return;
        }
        self.doubt_names(file, state);
        if self.is(file, &Kind::Directory) {
            self.leave(file);
        } else {
            for (directory, name) in self.held(file) {
                self.unlink(directory, &name);
            }
            self.strays(file);
        }
    }

    /// Forgets a directory that was seen outside, and came there with nobody looking: nothing was told of what became of
    /// its files. Where it is back, it is read.
    pub(super) fn has_been_out(&mut self, directory: File) {
        if !self.is(directory, &Kind::Directory) || Some(directory) == self.tree.root() {
            return;
        }
        for (above, _) in self.held(directory) {
            self.doubt(above, Part::Names);
        }
        self.leave(directory);
    }

    /// What has come back from outside is as unknown as what was never in the tree.
    pub(super) fn returned(&mut self, file: File) {
        if self.strayed.remove(&file) && self.held(file).is_empty() {
            self.leave(file);
        }
    }

    /// Lets go of what has no name in the tree: nobody tells when its last user leaves it, or what becomes of it outside.
    /// Where it gets a name again, that directory is read. Nothing may be in doubt.
    pub(super) fn let_go(&mut self) {
        while let Some(file) = self.nameless.pop_first() {
            if self.held(file).is_empty() && Some(file) != self.tree.root() {
                self.gone(file);
            }
        }
    }

    /// Where a directory comes to lie in what was below it, that has been moved out before, as will
    /// be told.
    fn free(&mut self, directory: File, file: File) {
        let mut at = directory;
        while at != file {
            let Some((above, name)) = self.held(at).pop_first() else {
                return;
            };
            if above == file {
                self.unlink(above, &name);
                self.doubt(above, Part::Names);
                self.doubt(at, Part::Attributes);
                return;
            }
            at = above;
        }
    }
}
