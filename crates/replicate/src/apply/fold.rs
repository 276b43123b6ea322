//! Reads the log up to an epoch, and keeps what a step to it has to know: what each file that the
//! records speak of was before, and what its bytes have become since.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::contents::Contents;
use crate::log::{self, Id, LocatedRecord, Reader};
use crate::make::Gate;
use crate::record::{Change, Entry, File, Record, Renumbering, Subject};
use crate::tree::{Node, Tree};

/// An epoch that the log has.
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

/// Files of later records.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// Something of them changes that is not a name.
    pub(super) changed: BTreeSet<File>,
    /// They get a name, or another gets theirs.
    pub(super) named: BTreeSet<File>,
    /// When the capture wrote the epochs among them.
    pub(super) epochs: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Fold {
    folder: PathBuf,
    reader: Reader,
    /// Looks ahead: no record is folded before the epoch that ends it is there.
    scout: Reader,
    last: Option<Target>,
    /// The last epoch that was folded.
    folded: Option<Target>,
    /// As of the last record that was folded.
    pub(super) tree: Tree,
    /// What the files that were spoken of were before the step; none for new ones.
    pub(super) before: BTreeMap<File, Option<Node>>,
    pub(super) root_before: Option<File>,
    pub(super) contents: Contents,
    /// The contents are not followed: they keep segments open, and the disk has no room for others until they are closed.
    released: bool,
    gate: Gate,
    /// The scout has seen that files are renumbered behind the last epoch: no step goes beyond that epoch.
    border: bool,
    renumbering: Renumbering,
    /// What files are called otherwise since this was taken.
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

    /// Which log it is; none while nothing was written to it.
    pub(super) fn id(&mut self) -> Result<Option<Id>, log::Error> {
        self.reader.id()
    }

    /// The last epoch that there is by now, or this one.
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

    /// Whether there is more than the last step could go to.
    pub(super) fn is_at_border(&self) -> bool {
        self.border && self.last == self.folded
    }

    /// Folds up to this record; false if the log does not have it any more.
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

    /// Forgets what the bytes of files have become, and of later records, too.
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

    /// Whether the last epoch that was folded was written at that time; zero where that is not known.
    pub(super) fn ends_with(&self, at_ns: u64) -> bool {
        at_ns == 0 || self.folded.is_some_and(|folded| folded.at_ns == at_ns)
    }

    /// Returns when all that was folded survives a loss of power.
    pub(super) fn persist(&mut self) -> Result<(), log::Error> {
        self.reader.persist()
    }

    /// A step begins here; `all` keeps what the log says of every byte.
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
    /// Whoever waits for it wants it to end.
    fn go_on(&self) -> Result<(), log::Error> {
        match self.gate.is_closed() {
            true => Err(log::Error::Io {
                path: self.folder.clone(),
                source: io::ErrorKind::Interrupted.into(),
            }),
            false => Ok(()),
        }
    }

    /// What records speak of that were not folded yet.
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
                // No step goes beyond.
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
                // What had the name is elsewhere by now, or gone, and may look like what has it.
                later.named.extend(self.tree.child(directory, name));
            }
            Subject::Entry { file: None, .. } | Subject::Knowledge => {}
        }
    }

    /// The step is done: of bytes, only those that are in no tree yet stay known, and those of files that are left out.
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
            // Of a replica, only what the log says of files.
            Entry::Source(_)
            | Entry::Term(_)
            | Entry::Patterns(_)
            | Entry::Barrier
            | Entry::Stale { .. } => {}
            // A step ends before: what files were is what they are.
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

    /// What a file was before this, the first time that it is spoken of.
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
