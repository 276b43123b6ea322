//! Where a file system tells that a file has changed, but not how.

use super::derive::Deriver;
use super::event::State;
use crate::record::{File, Kind, Part};

impl Deriver {
    /// Something of the file has changed, and of a directory maybe the names in it.
    pub(super) fn vague(&mut self, file: File, state: &State) {
        let Some(node) = self.tree.get(file) else {
            self.unknown(state);
            return;
        };
        let directory = node.kind == Kind::Directory;
        self.doubt(file, Part::Attributes);
        if directory {
            self.doubt(file, Part::Names);
        }
    }
}
