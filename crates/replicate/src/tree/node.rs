//! The state of a file according to the records, and the records that reproduce it.

use std::collections::BTreeSet;

use super::{Invalid, MAX_FILE_SIZE};
use crate::record::{Attributes, Change, Edit, File, Kind, Name, Xattr};

/// The known state of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// The attributes recorded last. `None` if none were recorded.
    pub attributes: Option<Attributes>,
    pub extended: Vec<Xattr>,
    /// In bytes. Zero for all but regular files.
    pub size: u64,
    /// Each directory that has the file, with the name. A directory has at most one.
    pub names: BTreeSet<(File, Name)>,
}

impl Node {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            attributes: None,
            extended: Vec::new(),
            size: 0,
            names: BTreeSet::new(),
        }
    }

    /// Applies a change to the file's state. The tree keeps the names.
    pub(super) fn change(&mut self, file: File, change: &Change) -> Result<(), Invalid> {
        match change {
            Change::Attributes { attributes, .. } => self.attributes = Some(*attributes),
            Change::Extended { all, .. } => self.extended.clone_from(all),
            _ => {
                if let Some((_, edit)) = change.edit() {
                    return self.edit(file, edit);
                }
            }
        }
        Ok(())
    }

    fn edit(&mut self, file: File, edit: Edit<'_>) -> Result<(), Invalid> {
        if self.kind != Kind::Regular {
            return Err(Invalid::NoContent { file });
        }
        let after = edit.size(self.size);
        let size = edit.bytes().map_or(after, |_| edit.range().1);
        if size > MAX_FILE_SIZE {
            return Err(Invalid::TooLarge { file, size });
        }
        self.size = after;
        Ok(())
    }

    /// Whether another state differs at most in kind, bytes and names.
    pub(crate) fn has_attributes_of(&self, other: &Self) -> bool {
        self.attributes == other.attributes && self.extended == other.extended
    }

    /// The changes that give a new file its state, without bytes and names.
    pub(crate) fn changes(&self, file: File) -> impl Iterator<Item = Change> {
        let all = self.extended.clone();
        let extended = (!all.is_empty()).then_some(Change::Extended { file, all });
        let attributes = self.attributes;
        let attributes = attributes.map(|attributes| Change::Attributes { file, attributes });
        extended.into_iter().chain(attributes)
    }
}
