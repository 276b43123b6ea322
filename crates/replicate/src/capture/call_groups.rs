//! Groups the files that one system call has touched. What happened to some of them is known only
//! from the others.

use std::collections::{BTreeMap, BTreeSet};

use super::calls;
use super::event::{Flags, State};
use super::shadow::ShadowTree;
use super::source::kind_of;
use crate::record::{File, Kind, Name, Part};

/// The calls in progress, by task.
#[derive(Debug, Default)]
pub(super) struct CallGroups(BTreeMap<u32, CallGroup>);

/// The files that one call has touched.
#[derive(Debug, Default)]
struct CallGroup {
    directories: Vec<File>,
    /// A file with several names was touched.
    linked: bool,
    /// Some names of a touched file, or some touched files, are unknown.
    short: bool,
    /// The directories of files whose names the kernel does not report.
    nameless: Vec<File>,
    /// An overlay whiteout was touched. All whiteouts are links of one inode.
    whiteout: bool,
    /// The directories in which the touched files have names now.
    parents: Vec<File>,
}

impl CallGroups {
    /// Adds a file to its call. The event of a rename does not tell which name of a file with
    /// several it was, and only the directory is reported for a file that crosses the boundary of
    /// the tree. `before` has the file's names before the call.
    pub(super) fn add(
        &mut self,
        shadow: &mut ShadowTree,
        file: File,
        (flags, state): (Flags, &State),
        before: &BTreeSet<(File, Name)>,
    ) {
        // An event that is complete by itself belongs to no call.
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
        // A file that was replaced by another is reported for that alone.
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

    /// Marks all calls in progress as incomplete: events of them are lost, and no further ones may
    /// arrive.
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
    /// Whether names in the directories of the call may have changed without a report.
    fn leaves_names_open(&self, call: u16) -> bool {
        let renames = calls::renames(call);
        let named = self
            .parents
            .iter()
            .any(|parent| self.directories.contains(parent));
        let unseen = !named && (renames || calls::links(call));
        // The same call may have added another name: an overlay copies a file up and links it into
        // its index. Or the file's place is unknown: a file that was replaced has its remaining
        // names elsewhere.
        let moved = |home: &File| self.directories.contains(home);
        let short = self.short || self.nameless.iter().any(moved);
        // If several calls add names, the newest name belongs to another call.
        unseen || short || self.whiteout || self.linked && renames
    }
}

fn is_whiteout(state: &State) -> bool {
    kind_of(state.mode.into(), state.device.into()) == Some(Kind::CharacterDevice(0))
}
