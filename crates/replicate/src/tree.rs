//! The source's tree according to the records, without the bytes of its files. Records are
//! untrusted: each is checked before it changes anything, and none can introduce a cycle.

mod doubts;
mod invalid;
mod node;
mod stale;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::ops::Bound;

use crate::patterns::Patterns;
use crate::record::{
    Change, Entry, File, Kind, Name, Part, Record, Renumbering, Source, Subject, Term,
};
pub use doubts::Doubts;
pub use invalid::Invalid;
pub use node::Node;
pub use stale::Stale;

/// The largest size of a file, in bytes.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// A tree built by folding records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    root: Option<File>,
    source: Option<Source>,
    /// The last promotion, or `None` before the first.
    term: Option<Term>,
    /// The promoted tree has not continued the log yet.
    unclaimed: bool,
    /// The part of a renumbering that has been read so far.
    renumbering: Renumbering,
    /// Something has changed since the last epoch.
    changed: bool,
    patterns: Patterns,
    files: BTreeMap<File, Node>,
    entries: BTreeMap<(File, Name), File>,
    doubts: Doubts,
    /// Directories other than the root without a name but with entries. There are none at an epoch.
    adrift: BTreeSet<File>,
    number: u64,
    epoch: u64,
    /// Files that the last epoch has in an earlier state, and those of the next epoch.
    stale: BTreeSet<File>,
    next_stale: BTreeSet<File>,
}

impl Tree {
    /// Folds the next record.
    ///
    /// # Errors
    /// [`Invalid`] if the record cannot follow the earlier ones. The tree then stays as it was.
    pub fn fold(&mut self, record: &Record) -> Result<(), Invalid> {
        // A base begins with the term of its log.
        let begins = matches!(record.entry, Entry::Start { .. } | Entry::Term(_));
        let starts = begins && self.number == 0;
        if !starts && record.number != self.number + 1 {
            return Err(Invalid::Gap {
                expected: self.number + 1,
                found: record.number,
            });
        }
        self.enter(&record.entry)?;
        self.number = record.number;
        Ok(())
    }

    /// Folds an entry without checking its number, for code that writes records.
    ///
    /// # Errors
    /// [`Invalid`] if the entry cannot follow. The tree then stays as it was.
    pub fn enter(&mut self, entry: &Entry) -> Result<(), Invalid> {
        if !self.renumbering.is_empty() && !matches!(entry, Entry::Renumber { .. }) {
            return Err(Invalid::Renumber("it does not end"));
        }
        match entry {
            Entry::Start { root } => {
                *self = Self {
                    root: Some(*root),
                    files: BTreeMap::from([(*root, Node::new(Kind::Directory))]),
                    number: self.number,
                    epoch: self.epoch,
                    // A start describes the whole tree, of a promoted tree or of a base.
                    unclaimed: false,
                    term: self.term.take(),
                    changed: true,
                    ..Self::default()
                };
                Ok(())
            }
            Entry::Source(source) => {
                self.root.ok_or(Invalid::NoStart)?;
                self.source = Some(source.clone());
                Ok(())
            }
            Entry::Term(term) => self.promote(term),
            Entry::Renumber { pairs, last } => self.renumber(pairs, *last),
            Entry::Patterns(patterns) => {
                self.root.ok_or(Invalid::NoStart)?;
                self.patterns.clone_from(patterns);
                Ok(())
            }
            Entry::Barrier => self.root.map(drop).ok_or(Invalid::NoStart),
            Entry::Stale { file } => {
                self.root.ok_or(Invalid::NoStart)?;
                self.node(*file)?;
                self.next_stale.insert(*file);
                Ok(())
            }
            Entry::Epoch { number } => self.close(*number),
            Entry::Change(change) => {
                let root = self.root.ok_or(Invalid::NoStart)?;
                self.changed = true;
                self.change(change, root)
            }
        }
    }

    /// The root directory, once a `Start` record has named it.
    pub fn root(&self) -> Option<File> {
        self.root
    }

    /// The identity of the tree. `None` for logs of earlier versions, which do not record it.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// The patterns that were recorded last.
    pub fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    pub fn get(&self, file: File) -> Option<&Node> {
        self.files.get(&file)
    }

    /// The file that a name in a directory refers to.
    pub fn child(&self, directory: File, name: &Name) -> Option<File> {
        self.entries.get(&(directory, name.clone())).copied()
    }

    /// The names in a directory, sorted.
    pub fn children(&self, directory: File) -> impl Iterator<Item = (&Name, File)> {
        let first = Name::first();
        self.entries
            .range((directory, first)..)
            .take_while(move |((of, _), _)| *of == directory)
            .map(|((_, name), file)| (name, *file))
    }

    /// The next name in a directory after another one, or its first.
    pub(crate) fn next_child(
        &self,
        directory: File,
        after: Option<&Name>,
    ) -> Option<(&Name, File)> {
        let from = match after {
            Some(name) => Bound::Excluded((directory, name.clone())),
            None => Bound::Included((directory, Name::first())),
        };
        let ((of, name), file) = self.entries.range((from, Bound::Unbounded)).next()?;
        (*of == directory).then_some((name, *file))
    }

    /// The number of files of all kinds, including those without a name.
    pub(crate) fn len(&self) -> u64 {
        self.files.len() as u64
    }

    pub fn files(&self) -> impl Iterator<Item = (File, &Node)> {
        self.files.iter().map(|(file, node)| (*file, node))
    }

    /// A path of the file below the root. `None` for a file that no path leads to. The path of the
    /// root is empty.
    pub fn path(&self, file: File) -> Option<Vec<Name>> {
        let mut path = Vec::new();
        let mut at = file;
        while Some(at) != self.root {
            let (directory, name) = self.files.get(&at)?.names.first()?;
            path.push(name.clone());
            at = *directory;
        }
        path.reverse();
        Some(path)
    }

    /// Whether something is in doubt.
    pub fn doubtful(&self) -> bool {
        self.doubts.first().is_some()
    }

    pub(crate) fn is_in_doubt(&self, file: File, part: &Part) -> bool {
        self.doubts.has(file, part)
    }

    /// All parts in doubt.
    pub(crate) fn in_doubt(&self) -> impl Iterator<Item = (File, Part)> {
        self.doubts.parts()
    }

    /// Files that the last epoch has in an earlier state, because they changed all the time.
    pub fn stale(&self) -> impl Iterator<Item = File> {
        self.stale.iter().copied()
    }

    /// The number of the last record, or zero before the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The last epoch's number, or zero before the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn close(&mut self, number: u64) -> Result<(), Invalid> {
        // The stale files of a rejected epoch do not belong to the next one.
        let stale = take(&mut self.next_stale);
        if self.root.is_none() {
            return Err(Invalid::NoStart);
        }
        if number <= self.epoch {
            return Err(Invalid::Epoch {
                number,
                last: self.epoch,
            });
        }
        if let Some(file) = self.doubts.first_except(&stale) {
            return Err(Invalid::Doubt { file });
        }
        if let Some(file) = self.adrift.first() {
            return Err(Invalid::Adrift { file: *file });
        }
        self.epoch = number;
        self.changed = false;
        self.stale = stale;
        Ok(())
    }

    fn change(&mut self, change: &Change, root: File) -> Result<(), Invalid> {
        match change.subject() {
            Subject::File(file) => match change {
                Change::New { kind, .. } => self.new_file(file, kind),
                Change::Gone { .. } => self.gone(file, root),
                _ => self.node(file)?.change(file, change),
            },
            Subject::Entry {
                directory,
                name,
                file: Some(file),
            } => self.link(directory, name, file, root),
            Subject::Entry {
                directory, name, ..
            } => self.unlink(directory, name, root),
            Subject::Knowledge => {
                self.doubts.follow(change);
                Ok(())
            }
        }
    }

    fn new_file(&mut self, file: File, kind: &Kind) -> Result<(), Invalid> {
        if self.files.contains_key(&file) {
            return Err(Invalid::Again { file });
        }
        self.files.insert(file, Node::new(kind.clone()));
        Ok(())
    }

    fn gone(&mut self, file: File, root: File) -> Result<(), Invalid> {
        let named = !self.node(file)?.names.is_empty();
        if named || file == root || !self.is_empty(file) {
            return Err(Invalid::InUse { file });
        }
        self.files.remove(&file);
        self.doubts.forget(file);
        self.stale.remove(&file);
        self.next_stale.remove(&file);
        Ok(())
    }

    /// Linking a directory moves it, because it has at most one name.
    fn link(
        &mut self,
        directory: File,
        name: &Name,
        file: File,
        root: File,
    ) -> Result<(), Invalid> {
        if self.node(directory)?.kind != Kind::Directory {
            return Err(Invalid::NoDirectory { file: directory });
        }
        let moves = self.node(file)?.kind == Kind::Directory;
        // Most directories are new and have no contents. Walking up from each of them would take
        // time that grows with the square of the depth.
        let above = || match self.is_empty(file) {
            true => directory == file,
            false => self.is_below(directory, file),
        };
        if moves && (file == root || above()) {
            return Err(Invalid::Cycle { file, directory });
        }
        let entry = (directory, name.clone());
        if self.entries.get(&entry) == Some(&file) {
            return Ok(());
        }
        if self.entries.contains_key(&entry) {
            self.unlink(directory, name, root)?;
        }
        let node = self.node(file)?;
        let before = if moves { node.names.pop_first() } else { None };
        node.names.insert(entry.clone());
        if let Some(before) = before {
            self.entries.remove(&before);
            self.follow_entries(before.0, root);
        }
        self.entries.insert(entry, file);
        self.follow_entries(directory, root);
        self.adrift.remove(&file);
        Ok(())
    }

    fn unlink(&mut self, directory: File, name: &Name, root: File) -> Result<(), Invalid> {
        let entry = (directory, name.clone());
        let Some(file) = self.entries.remove(&entry) else {
            return Err(Invalid::NoEntry {
                directory,
                name: name.clone(),
            });
        };
        let node = self.node(file)?;
        node.names.remove(&entry);
        self.follow_entries(directory, root);
        self.follow_entries(file, root);
        Ok(())
    }

    /// Updates `adrift` after the entries or the name of a directory have changed.
    fn follow_entries(&mut self, directory: File, root: File) {
        let named = (self.files.get(&directory)).is_some_and(|node| !node.names.is_empty());
        match named || directory == root || self.is_empty(directory) {
            true => self.adrift.remove(&directory),
            false => self.adrift.insert(directory),
        };
    }

    fn node(&mut self, file: File) -> Result<&mut Node, Invalid> {
        self.files.get_mut(&file).ok_or(Invalid::Unknown { file })
    }

    fn is_empty(&self, directory: File) -> bool {
        self.children(directory).next().is_none()
    }

    /// Whether `file` is the directory `of` or below it.
    fn is_below(&self, file: File, of: File) -> bool {
        let mut at = Some(file);
        while let Some(file) = at {
            if file == of {
                return true;
            }
            let above = self.files.get(&file).and_then(|node| node.names.first());
            at = above.map(|(directory, _)| *directory);
        }
        false
    }

    /// The last promotion, or `None` before the first.
    pub fn term(&self) -> Option<&Term> {
        self.term.as_ref()
    }

    /// The last promotion, if the promoted tree has not continued the log yet.
    pub(crate) fn unclaimed(&self) -> Option<&Term> {
        self.term.as_ref().filter(|_| self.unclaimed)
    }

    fn promote(&mut self, term: &Term) -> Result<(), Invalid> {
        let last = self.term.as_ref().map_or(Term::FIRST, |term| term.number);
        // A base begins with its term, before anything is known.
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

    fn renumber(&mut self, pairs: &[(File, File)], last: bool) -> Result<(), Invalid> {
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

    /// Gives all files their new identifiers. A file without one gets an unused identifier.
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
        // This follows an epoch, so any remaining doubt was of a stale file.
        self.doubts = Doubts::default();
    }
}
