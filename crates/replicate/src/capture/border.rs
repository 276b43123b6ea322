//! What patterns leave out of the tree is as what lies outside of it: files cross that border when they get
//! and lose names, and when a directory above them does.

use super::derive::Deriver;
use super::doubt::Doubts;
use super::event::{Flags, State, What};
use super::{Capture, Error, Listener};
use crate::record::{Change, File, Kind, Name, Part};
use crate::tree::Tree;

const TYPE: u16 = 0o170_000;
const DIRECTORY: u16 = 0o040_000;

impl Capture {
    /// Reads what is in doubt. Directories that no path leads to come last: by then one may have been found.
    pub(super) fn read_all(
        &mut self,
        doubts: &Doubts,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let mut later = Vec::new();
        for (file, doubt) in doubts {
            match self.deriver.is_nowhere(*file) {
                true => later.push((file, doubt)),
                false => self.read(*file, doubt, listener)?,
            }
        }
        for (file, doubt) in later {
            self.read(*file, doubt, listener)?;
        }
        for (directory, names) in std::mem::take(&mut self.listed) {
            self.forget_missing(directory, &names);
        }
        Ok(())
    }
}

impl Deriver {
    /// Whether a name in a directory of the tree belongs to it.
    pub(super) fn admits(&self, directory: File, name: &Name, is_directory: bool) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        let path = path_of(&self.tree, directory);
        path.is_some_and(|path| self.filter.admits(&joined(path, name), is_directory))
    }

    /// The names in a directory that belong to the tree; none where it is gone.
    pub(super) fn list(&mut self, directory: File) -> Result<Option<Vec<(Name, File)>>, Error> {
        if self.filter.is_empty() {
            return self.source.list(directory, |_, _| Ok(true));
        }
        let Some(path) = path_of(&self.tree, directory) else {
            // What in it belongs, nobody can say: where it has a name, it will be found.
            self.leave(directory);
            return Ok(None);
        };
        let filter = &self.filter;
        self.source.list(directory, |name, is_directory| {
            Ok(filter.admits(&joined(path.clone(), name), is_directory()?))
        })
    }

    /// A file is made. Whether it belongs, its name tells, which comes later.
    pub(super) fn made(&mut self, file: File, state: &State) {
        if self.is(state.parent, &Kind::Directory) {
            self.fresh.insert(file);
        }
    }

    /// What was done to a file that was to be new is not said: it is read instead, as any that comes into the
    /// tree.
    pub(super) fn missed(&mut self, file: File, what: &What) {
        if what.is_of_bytes() && !self.filter.is_empty() {
            self.fresh.remove(&file);
        }
    }

    /// Whether what was made belongs; what does not, is as unknown as what is outside.
    pub(super) fn settles(&mut self, file: File, flags: Flags, state: &State) -> bool {
        let belongs = match &state.name {
            _ if self.filter.is_empty() => true,
            Some((directory, name)) => {
                self.is(*directory, &Kind::Directory)
                    && self.admits(*directory, name, is_directory(state))
            }
            // As what a rename leaves behind where that is asked for.
            None if state.links > 0 && !flags.in_the_middle() => {
                self.doubt_all_names();
                false
            }
            None => false,
        };
        if !belongs {
            self.fresh.remove(&file);
        }
        belongs
    }

    /// It is said to be new: what came before is not.
    pub(super) fn settled_late(&mut self, file: File, state: &State) {
        if self.filter.is_empty() {
            return;
        }
        if self.is(file, &Kind::Directory) {
            self.doubt(file, Part::Names);
        }
        if let Some((directory, _)) = &state.name {
            self.inherit(file, *directory);
        }
    }

    /// Whether a file that is not in the tree may belong to it by its name, or by one that was not told.
    pub(super) fn may_belong(
        &self,
        (directory, name): (File, &Name),
        flags: Flags,
        state: &State,
    ) -> bool {
        // Before the operation has ended it may have another name than then.
        let unsure = flags.in_the_middle() || flags.overflown();
        let others = state.links > 1 && !is_directory(state);
        unsure || others || self.admits(directory, name, is_directory(state))
    }

    /// Whether what is in a directory may belong where it did not, once it has its next name. Of one that was
    /// new, all is read after that anyway.
    pub(super) fn moves(&mut self, file: File) -> bool {
        if self.filter.is_empty() || !self.is(file, &Kind::Directory) {
            return false;
        }
        let born = self.newborn.remove(&file);
        !born && (self.filter.moves() || self.held(file).is_empty())
    }

    /// All directories from this one down are read again.
    pub(super) fn reconsider(&mut self, directory: File) {
        let mut below = vec![directory];
        while let Some(directory) = below.pop() {
            self.doubt(directory, Part::Names);
            let children = self.tree.children(directory).map(|(_, child)| child);
            below.extend(children.filter(|child| self.is(*child, &Kind::Directory)));
        }
    }

    /// Notes a directory that is said to be new.
    pub(super) fn note_birth(&mut self, change: &Change) {
        match change {
            Change::New {
                file,
                kind: Kind::Directory,
            } if !self.filter.is_empty() => drop(self.newborn.insert(*file)),
            Change::Gone { file } => drop(self.newborn.remove(file)),
            _ => {}
        }
    }

    /// A directory that no path leads to, where that matters.
    fn is_nowhere(&self, file: File) -> bool {
        !self.filter.is_empty() && self.is(file, &Kind::Directory) && self.tree.path(file).is_none()
    }
}

fn is_directory(state: &State) -> bool {
    state.mode & TYPE == DIRECTORY
}

fn path_of(tree: &Tree, directory: File) -> Option<Vec<u8>> {
    let names = tree.path(directory)?;
    Some(
        names
            .iter()
            .map(Name::as_bytes)
            .collect::<Vec<_>>()
            .join(&b'/'),
    )
}

fn joined(mut path: Vec<u8>, name: &Name) -> Vec<u8> {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend(name.as_bytes());
    path
}
