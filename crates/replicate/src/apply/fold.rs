//! Reads the log up to an epoch and keeps what a step needs: the former state of each file that the
//! records mention, and what its bytes have become since.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::contents::Contents;
use crate::log::{self, Id, LocatedRecord, Reader};
use crate::make::Gate;
use crate::record::{Change, Entry, File, Record, Renumbering, Subject};
use crate::tree::{Node, Tree};

/// An epoch of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) epoch: u64,
    /// The number of its record.
    pub(super) record: u64,
    /// When the capture wrote it, in nanoseconds since 1970.
    pub(super) at_ns: u64,
}

impl Target {
    fn of(record: &Record) -> Option<Self> {
        let Entry::Epoch { number } = record.entry else {
            return None;
        };
        Some(Self {
            epoch: number,
            record: record.number,
            at_ns: record.at_ns,
        })
    }
}

/// The files that later records mention.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// Files of which something other than a name changes.
    pub(super) changed: BTreeSet<File>,
    /// Files that get a name, or whose name another file gets.
    pub(super) named: BTreeSet<File>,
    /// When the capture wrote the epochs among those records.
    pub(super) epochs: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Fold {
    folder: PathBuf,
    reader: Reader,
    /// Looks ahead: a record is folded only when the epoch that contains it is complete.
    scout: Reader,
    last: Option<Target>,
    /// The last epoch that was folded.
    folded: Option<Target>,
    /// The tree as of the last folded record.
    pub(super) tree: Tree,
    /// The states before the step of the files that records mention. `None` for new files.
    pub(super) before: BTreeMap<File, Option<Node>>,
    pub(super) root_before: Option<File>,
    pub(super) contents: Contents,
    /// The contents are not followed. They would keep segments open, whose disk space is needed for
    /// new ones.
    released: bool,
    gate: Gate,
    /// The scout has seen that files are renumbered after the last epoch. No step goes beyond that
    /// epoch.
    border: bool,
    renumbering: Renumbering,
    /// Renumberings of files since the last call that took them.
    pub(super) renumbered: Option<Renumbering>,
}

impl Fold {
    pub(super) fn open(folder: &Path, gate: Gate) -> Result<Self, log::Error> {
        let reader = Reader::open(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            scout: reader.clone(),
            reader,
            last: None,
            folded: None,
            tree: Tree::default(),
            before: BTreeMap::new(),
            root_before: None,
            contents: Contents::default(),
            released: false,
            gate,
            border: false,
            renumbering: Renumbering::default(),
            renumbered: None,
        })
    }

    /// The identity of the log. `None` if nothing has been written to it.
    pub(super) fn id(&mut self) -> Result<Option<Id>, log::Error> {
        self.reader.id()
    }

    /// The log's last epoch so far, or the epoch `up_to`.
    pub(super) fn look(&mut self, up_to: Option<u64>) -> Result<Option<Target>, log::Error> {
        let enough = |last: Option<Target>| {
            last.is_some_and(|last| up_to.is_some_and(|epoch| last.epoch >= epoch))
        };
        self.border &= self.last != self.folded;
        while !enough(self.last) && !self.border {
            self.go_on()?;
            let Some(located) = self.scout.read()? else {
                break;
            };
            let record = located.record;
            if let Some(target) = Target::of(&record) {
                self.last = Some(target);
            }
            if let Entry::Renumber { .. } = record.entry {
                self.border = self.folded.is_some() && self.last != self.folded;
            }
        }
        Ok(self.last)
    }

    /// Whether the log continues beyond what the last step could reach.
    pub(super) fn is_at_border(&self) -> bool {
        self.border && self.last == self.folded
    }

    /// Folds up to this record. Returns false if the log no longer has it.
    pub(super) fn to(&mut self, target: u64) -> Result<bool, log::Error> {
        while self.tree.number() < target {
            self.go_on()?;
            let Some(located) = self.reader.read()? else {
                return Ok(false);
            };
            self.follow(&located)?;
        }
        Ok(self.tree.number() == target)
    }

    /// Forgets what the bytes of files have become, also for later records.
    pub(super) fn release(&mut self) {
        self.contents = Contents::default();
        self.released = true;
    }

    /// Whether it knows what the bytes of files have become.
    pub(super) fn has_contents(&self) -> bool {
        !self.released
    }

    /// The last epoch that was folded.
    pub(super) fn reached(&self) -> Option<Target> {
        self.folded
    }

    /// Whether the last folded epoch was written at that time. Zero stands for an unknown time.
    pub(super) fn ends_with(&self, at_ns: u64) -> bool {
        at_ns == 0 || self.folded.is_some_and(|folded| folded.at_ns == at_ns)
    }

    /// Returns when everything folded so far survives a power failure.
    pub(super) fn persist(&mut self) -> Result<(), log::Error> {
        self.reader.persist()
    }

    /// Begins a step. `all` keeps every byte that the log has.
    pub(super) fn begin(&mut self, all: bool) {
        self.scout = self.reader.clone();
        self.last = self.folded;
        self.border = false;
        if !all {
            return self.settle(&BTreeSet::new());
        }
        self.before.clear();
        self.root_before = self.tree.root();
    }

    /// # Errors
    /// Returns an error if the caller that waits wants to end.
    fn go_on(&self) -> Result<(), log::Error> {
        match self.gate.is_closed() {
            true => Err(log::Error::Io {
                path: self.folder.clone(),
                source: io::ErrorKind::Interrupted.into(),
            }),
            false => Ok(()),
        }
    }

    /// What the records that were not folded yet mention.
    pub(super) fn later(&self) -> Result<Later, log::Error> {
        let mut reader = self.reader.clone();
        let mut later = Later::default();
        while let Some(located) = reader.read()? {
            self.go_on()?;
            match located.record.entry {
                Entry::Change(Change::Gone { .. }) => {}
                Entry::Change(change) => self.expect(&change, &mut later),
                Entry::Epoch { .. } => {
                    later.epochs.insert(located.record.at_ns);
                }
                Entry::Start { .. }
                | Entry::Source(_)
                | Entry::Patterns(_)
                | Entry::Term(_)
                | Entry::Barrier
                | Entry::Stale { .. } => {}
                // No step goes beyond a renumbering.
                Entry::Renumber { .. } => break,
            }
        }
        Ok(later)
    }

    fn expect(&self, change: &Change, later: &mut Later) {
        match change.subject() {
            Subject::File(file) => drop(later.changed.insert(file)),
            Subject::Entry {
                directory,
                name,
                file: Some(file),
            } => {
                later.named.insert(file);
                // The file that had the name is elsewhere or gone, and may look like the one that
                // has it now.
                later.named.extend(self.tree.child(directory, name));
            }
            Subject::Entry { file: None, .. } | Subject::Knowledge => {}
        }
    }

    /// Ends a step. Of the contents, only bytes that are in no tree yet and those of omitted files
    /// are kept.
    pub(super) fn settle(&mut self, left_out: &BTreeSet<File>) {
        self.before.clear();
        self.root_before = self.tree.root();
        let tree = &self.tree;
        self.contents.retain(|file| {
            let unnamed = |node: &Node| node.names.is_empty();
            left_out.contains(&file) || tree.get(file).is_some_and(unnamed)
        });
    }

    fn follow(&mut self, located: &LocatedRecord) -> Result<(), log::Error> {
        match &located.record.entry {
            Entry::Start { .. } => {
                for (file, node) in self.tree.files() {
                    self.before
                        .entry(file)
                        .or_insert_with(|| Some(node.clone()));
                }
            }
            Entry::Change(change) => self.note(change),
            // These entries do not change the files of a replica.
            Entry::Source(_)
            | Entry::Term(_)
            | Entry::Patterns(_)
            | Entry::Barrier
            | Entry::Stale { .. } => {}
            // A step ends before a renumbering, so the former states are the current ones.
            Entry::Renumber { pairs, last } => {
                self.before.clear();
                if let Some(all) = self.renumbering.follow(pairs, *last) {
                    self.root_before = self.root_before.and_then(|root| all.get(root));
                    self.renumbered = Some(all);
                }
            }
            Entry::Epoch { .. } => self.folded = Target::of(&located.record),
        }
        self.tree.fold(&located.record).map_err(|invalid| {
            let folder = self.folder.clone();
            log::Error::Invalid { folder, invalid }
        })?;
        if !self.released {
            self.contents.follow(located);
        }
        Ok(())
    }

    /// Notes the state of a file before this change, when a record mentions it for the first time.
    fn note(&mut self, change: &Change) {
        let (one, other) = match change.subject() {
            Subject::File(file) => (Some(file), None),
            Subject::Entry {
                directory,
                name,
                file,
            } => (file, self.tree.child(directory, name)),
            Subject::Knowledge => (None, None),
        };
        for file in [one, other].into_iter().flatten() {
            if !self.before.contains_key(&file) {
                self.before.insert(file, self.tree.get(file).cloned());
            }
        }
    }
}
