//! What a system call has touched, taken together: of some of it only that shows what became of the rest.

use std::collections::{BTreeMap, BTreeSet};

use super::calls;
use super::event::{Flags, State};
use super::shadow::ShadowTree;
use super::source::kind_of;
use crate::record::{File, Kind, Name, Part};

/// The calls that are being told, by their tasks.
#[derive(Debug, Default)]
pub(super) struct CallGroups(BTreeMap<u32, CallGroup>);

/// What one call has touched.
#[derive(Debug, Default)]
struct CallGroup {
    directories: Vec<File>,
    /// A file with several names was touched.
    linked: bool,
    /// Not all names of a file that was touched are known, or what else was touched is not.
    short: bool,
    /// Where files have names in the tree of which the kernel tells none.
    nameless: Vec<File>,
    /// What an overlay puts where a file of a lower directory was, and has one of for all such.
    whiteout: bool,
    /// Where what it touched has names now.
    parents: Vec<File>,
}

impl CallGroups {
    /// A rename of a file with several names leaves open which of them it was, and of what crosses the
    /// boundary of the tree only the directory is told. `before` the file had these names.
    pub(super) fn add(
        &mut self,
        shadow: &mut ShadowTree,
        file: File,
        (flags, state): (Flags, &State),
        before: &BTreeSet<(File, Name)>,
    ) {
        // What is told at once, is of no call that ends.
        if state.call == 0 {
            if flags.last() {
                self.0.remove(&state.task);
            }
            return;
        }
        let now = shadow.names_of(file);
        let directory = shadow.is(file, &Kind::Directory);
        let linked = !directory && state.links > 1;
        let short = linked && shadow.lacks_more_names(file, state.links, now.len());
        let nameless = !directory && state.links > 0 && state.name.is_none();
        let group = self.0.entry(state.task).or_default();
        if directory {
            group.directories.push(file);
        }
        group.linked |= linked;
        group.short |= short;
        if nameless {
            group.nameless.extend(now.iter().map(|(home, _)| *home));
        }
        group.whiteout |= linked && is_whiteout(state);
        // What another file was put in the place of, was told for that alone.
        let replaced = now.len() < before.len() && now.is_subset(before);
        let parent = state.name.as_ref().map(|(parent, _)| *parent);
        group.parents.extend(parent.filter(|_| !replaced));
        if !flags.last() {
            return;
        }
        let group = self.0.remove(&state.task).unwrap_or_default();
        if group.leaves_names_open(state.call) {
            for directory in group.directories {
                shadow.raise_doubt(directory, Part::Names);
            }
        }
    }

    /// What was told of calls is not all that they touched, and nothing may be told of them any more.
    pub(super) fn cut_short(&mut self, shadow: &mut ShadowTree) {
        let mut directories = BTreeSet::new();
        for group in self.0.values_mut() {
            group.short = true;
            directories.extend(group.directories.drain(..));
        }
        for directory in directories {
            shadow.raise_doubt(directory, Part::Names);
        }
    }
}

impl CallGroup {
    /// Whether names in its directories may have changed that were not told.
    fn leaves_names_open(&self, call: u16) -> bool {
        let renames = calls::renames(call);
        let named = self
            .parents
            .iter()
            .any(|parent| self.directories.contains(parent));
        let unseen = !named && (renames || calls::links(call));
        // Another name may have been given by the same call, whatever it is: an overlay copies a file up, and links
        // that where it keeps count of names. Or nobody knows where it is now: one that another was put in the place of
        // has its names elsewhere.
        let moved = |home: &File| self.directories.contains(home);
        let short = self.short || self.nameless.iter().any(moved);
        // The newest name is another call's, where several make them.
        unseen || short || self.whiteout || self.linked && renames
    }
}

fn is_whiteout(state: &State) -> bool {
    kind_of(state.mode.into(), state.device.into()) == Some(Kind::CharacterDevice(0))
}
