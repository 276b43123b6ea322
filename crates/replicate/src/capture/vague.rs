//! Where a file system tells that a file has changed, but not how.

use super::derive::Deriver;
use super::event::{Flags, State};
use crate::record::{File, Kind, Part};

impl Deriver {
    /// Something of the file has changed, and of a directory maybe the names in it.
    pub(super) fn vague(&mut self, file: File, flags: Flags, state: &State) {
        let Some(node) = self.tree.get(file) else {
            self.unknown(flags, state);
            return;
        };
        let directory = node.kind == Kind::Directory;
        self.doubt(file, Part::Attributes);
        if directory {
            self.doubt(file, Part::Names);
        }
    }

    /// All bytes that were written to the file have been told, and it changed in nothing else but these
    /// attributes: of its names directories tell.
    pub(super) fn written(&mut self, file: File, flags: Flags, state: &State) {
        if self.tree.get(file).is_none() {
            self.unknown(flags, state);
        } else if state.mode == 0 || state.links == 0 || flags.overflown() {
            self.doubt(file, Part::Attributes);
        } else {
            self.attributes(file, state);
        }
    }
}
