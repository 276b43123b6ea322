//! What a system call has touched, taken together: of some of it only that shows what became of the rest.

use std::collections::BTreeSet;

use super::calls;
use super::derive::Deriver;
use super::event::{Flags, State};
use super::source::kind_of;
use crate::record::{File, Kind, Name, Part};

/// Of one operation.
#[derive(Debug, Default)]
pub(super) struct Told {
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

impl Deriver {
    /// A rename of a file with several names leaves open which of them it was, and of what crosses the
    /// border of the tree only the directory is told. `before` the file had these names.
    pub(super) fn group(
        &mut self,
        file: File,
        flags: Flags,
        state: &State,
        before: &BTreeSet<(File, Name)>,
    ) {
        // What is told at once, is of no call that ends.
        if state.call == 0 {
            if flags.last() {
                self.told.remove(&state.task);
            }
            return;
        }
        let now = self.held(file);
        let directory = self.is(file, &Kind::Directory);
        let linked = !directory && state.links > 1;
        let short = linked && self.lacks_more(file, state, now.len());
        let nameless = !directory && state.links > 0 && state.name.is_none();
        let told = self.told.entry(state.task).or_default();
        if directory {
            told.directories.push(file);
        }
        told.linked |= linked;
        told.short |= short;
        if nameless {
            told.nameless.extend(now.iter().map(|(home, _)| *home));
        }
        told.whiteout |= linked && is_whiteout(state);
        // What another file was put in the place of, was told for that alone.
        let replaced = now.len() < before.len() && now.is_subset(before);
        let parent = state.name.as_ref().map(|(parent, _)| *parent);
        told.parents.extend(parent.filter(|_| !replaced));
        if !flags.last() {
            return;
        }
        let told = self.told.remove(&state.task).unwrap_or_default();
        let renames = calls::renames(state.call);
        let named = told
            .parents
            .iter()
            .any(|parent| told.directories.contains(parent));
        let unseen = !named && (renames || calls::links(state.call));
        // Another name may have been given by the same call, whatever it is: an overlay copies a file up, and links
        // that where it keeps count of names. Or nobody knows where it is now: one that another was put in the place of
        // has its names elsewhere.
        let moved = |home: &File| told.directories.contains(home);
        let short = told.short || told.nameless.iter().any(moved);
        // The newest name is another call's, where several make them.
        if unseen || short || told.whiteout || told.linked && renames {
            for directory in told.directories {
                self.doubt(directory, Part::Names);
            }
        }
    }

    /// What was told of calls is not all that they touched, and nothing may be told of them any more.
    pub(super) fn fall_short(&mut self) {
        let mut directories = BTreeSet::new();
        for told in self.told.values_mut() {
            told.short = true;
            directories.extend(told.directories.drain(..));
        }
        for directory in directories {
            self.doubt(directory, Part::Names);
        }
    }

    /// Whether more of a file's names are unknown than were: as many as are outside of the tree always are.
    fn lacks_more(&mut self, file: File, state: &State, known: usize) -> bool {
        let links = usize::try_from(state.links).unwrap_or(usize::MAX);
        let lacks = links.saturating_sub(known);
        let before = match lacks {
            0 => self.outside.remove(&file),
            _ => self.outside.insert(file, lacks),
        };
        lacks > before.unwrap_or(0)
    }
}

fn is_whiteout(state: &State) -> bool {
    kind_of(state.mode.into(), state.device.into()) == Some(Kind::CharacterDevice(0))
}
