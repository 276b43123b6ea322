//! What a step that was cut off may have left in a tree.

use std::collections::BTreeSet;

use super::fold::Later;
use super::state::{Phase, State};
use super::{Error, Replica};
use crate::record::{File, Kind};

impl Replica {
    /// What may have been changed already, unfinished: all that later records speak of, and what is below directories
    /// that they move. Another file that looks like it may have its name by now.
    pub(super) fn suspect(&mut self) -> Result<(), Error> {
        let Later {
            changed,
            named,
            epochs,
        } = self.fold.later()?;
        let State {
            phase,
            to_ns,
            epoch,
            ..
        } = self.kept.now;
        if phase == Phase::Placing && to_ns != 0 && !epochs.contains(&to_ns) {
            // It has lost that, or another in its place.
            let log = self.log.clone();
            return Err(match epochs.is_empty() {
                true => Error::Short { log, epoch },
                false => Error::Behind { log, epoch },
            });
        }
        let tree = &self.fold.tree;
        let is_directory = |file: File| {
            tree.get(file)
                .is_some_and(|node| node.kind == Kind::Directory)
        };
        let of_two_kinds = |files: BTreeSet<File>| -> (Vec<File>, Vec<File>) {
            let known = files.into_iter().filter(|file| tree.get(*file).is_some());
            known.partition(|file| is_directory(*file))
        };
        let (worn, lost) = of_two_kinds(changed);
        let (mut moved, renamed) = of_two_kinds(named);
        self.found.worn.extend(worn);
        self.found.lost.extend(lost);
        self.found.lost.extend(renamed);
        let mut seen = BTreeSet::new();
        while let Some(directory) = moved.pop() {
            if !seen.insert(directory) {
                continue;
            }
            self.found.worn.insert(directory);
            for (_, file) in tree.children(directory) {
                if is_directory(file) {
                    moved.push(file);
                } else {
                    self.found.lost.insert(file);
                }
            }
        }
        Ok(())
    }
}
