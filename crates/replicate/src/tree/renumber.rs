//! Another tree goes on with the log: its files are others, and the names are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use super::{Invalid, Tree};
use crate::record::{File, Renumbering, Term};

impl Tree {
    /// Of the last promotion; none before the first.
    pub fn term(&self) -> Option<&Term> {
        self.term.as_ref()
    }

    /// The last promotion, if the promoted tree has not gone on with the log yet.
    pub(crate) fn unclaimed(&self) -> Option<&Term> {
        self.term.as_ref().filter(|_| self.unclaimed)
    }

    pub(super) fn promote(&mut self, term: &Term) -> Result<(), Invalid> {
        let last = self.term.as_ref().map_or(Term::FIRST, |term| term.number);
        // What a log was folded to begins with its term, before anything is known.
        let follows = self.root.is_none() || (term.epoch == self.epoch && !self.changed);
        if term.number <= last || !follows {
            return Err(Invalid::Term {
                number: term.number,
                last,
                epoch: self.epoch,
            });
        }
        self.term = Some(term.clone());
        self.unclaimed = true;
        Ok(())
    }

    pub(super) fn renumber(&mut self, pairs: &[(File, File)], last: bool) -> Result<(), Invalid> {
        if self.changed || !self.unclaimed {
            return Err(Invalid::Renumber("no promotion is before"));
        }
        for (before, _) in pairs {
            if !self.files.contains_key(before) {
                return Err(Invalid::Unknown { file: *before });
            }
        }
        let Some(all) = self.renumbering.follow(pairs, last) else {
            return match pairs.is_empty() {
                true => Err(Invalid::Renumber("a record has none")),
                false => Ok(()),
            };
        };
        if all.len() != self.files.len() || !all.is_distinct() {
            return Err(Invalid::Renumber(
                "not each of them has a number of its own",
            ));
        }
        self.renumber_files(&all);
        self.unclaimed = false;
        Ok(())
    }

    /// Calls all files otherwise: by something that no file is called, where nothing is said.
    pub(crate) fn renumber_files(&mut self, all: &Renumbering) {
        let mut all = all.clone();
        all.cover(self.files.keys().copied());
        let name = |file: File| all.get(file).unwrap_or(file);
        let names = |files: &mut BTreeSet<File>| take(files).into_iter().map(name).collect();
        let files = take(&mut self.files).into_iter().map(|(file, mut node)| {
            let places = take(&mut node.names).into_iter();
            node.names = places
                .map(|(directory, called)| (name(directory), called))
                .collect();
            (name(file), node)
        });
        let files: BTreeMap<_, _> = files.collect();
        let entries = take(&mut self.entries).into_iter();
        self.entries = entries
            .map(|((directory, called), file)| ((name(directory), called), name(file)))
            .collect();
        self.files = files;
        self.root = self.root.map(name);
        self.stale = names(&mut self.stale);
        self.next_stale = names(&mut self.next_stale);
        self.adrift = names(&mut self.adrift);
        // An epoch is before: nothing is in doubt, or it was stale.
        self.doubts = super::Doubts::default();
    }
}
