//! Lists the changes of a tree between two epochs of its log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use datapath::{Classify, ErrorClass};

use crate::contents::{Contents, Source};
use crate::log::{self, Reader};
use crate::record::{Change, Entry, File, Kind, Name, Renumbering};
use crate::tree::{Node, Tree};

/// A difference between two epochs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The path below the root with names joined by `/`, empty for the root itself. The path of the
    /// later epoch if there is one.
    pub path: Vec<u8>,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Removed,
    Created,
    /// Also the former path. The contents of a directory move with it and are not listed.
    Renamed {
        from: Vec<u8>,
    },
    /// The bytes of a file, or the target of a symbolic link.
    Content,
    /// Mode, owner, group or extended attributes. If the bytes are the same, also the modification
    /// time.
    Metadata,
}

impl What {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Created => "created",
            Self::Renamed { .. } => "renamed",
            Self::Content => "content",
            Self::Metadata => "metadata",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error("--from {from} is after --to {to}: exchange them")]
    Order { from: u64, to: u64 },
    #[error("{} has no epoch after {from}: wait for one, or name an earlier --from", .folder.display())]
    Last { folder: PathBuf, from: u64 },
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Log(error) => error.class(),
            Self::Order { .. } | Self::Last { .. } => ErrorClass::Input,
        }
    }
}

/// The compared epochs, and the differences in the order of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    pub from: u64,
    pub to: u64,
    pub all: Vec<Difference>,
}

/// Compares the trees of two epochs of a log. `to` defaults to the last epoch.
///
/// # Errors
/// [`log::Error::NoEpoch`], [`Error::Order`], or an error of reading the log.
pub fn diff(folder: &Path, from: u64, to: Option<u64>) -> Result<Diff, Error> {
    if let Some(to) = to.filter(|to| from > *to) {
        return Err(Error::Order { from, to });
    }
    let mut reading = EpochReader {
        folder,
        reader: Reader::open_log(folder)?,
        tree: Tree::default(),
        contents: Contents::default(),
        gone: BTreeSet::new(),
        renumbering: Renumbering::default(),
        renumbered: Vec::new(),
    };
    reading.to(from)?;
    let mut before = (reading.tree.clone(), std::mem::take(&mut reading.contents));
    reading.gone.clear();
    reading.renumbered.clear();
    let to = match to {
        Some(to) if to == from => to,
        Some(to) => {
            reading.to(to)?;
            to
        }
        None => reading.go_to_last()?.ok_or_else(|| Error::Last {
            folder: folder.to_owned(),
            from,
        })?,
    };
    for all in &reading.renumbered {
        before.0.renumber_files(all);
        before.1.renumber(all);
    }
    let mut comparison = Comparison {
        before: &before.0,
        after: &reading.tree,
        gone: &reading.gone,
        contents: (&before.1, &reading.contents),
        sources: (Source::default(), Source::default()),
        all: Vec::new(),
    };
    comparison.run()?;
    let mut all = comparison.all;
    all.sort();
    Ok(Diff { from, to, all })
}

/// A log that is read up to an epoch.
struct EpochReader<'a> {
    folder: &'a Path,
    reader: Reader,
    tree: Tree,
    /// The bytes written and the files removed since both were cleared.
    contents: Contents,
    gone: BTreeSet<File>,
    renumbering: Renumbering,
    /// Renumberings of files since then.
    renumbered: Vec<Renumbering>,
}

impl EpochReader<'_> {
    fn to(&mut self, epoch: u64) -> Result<(), log::Error> {
        while let Some(number) = self.next_epoch()? {
            if number == epoch {
                return Ok(());
            }
            if number > epoch {
                break;
            }
        }
        Err(log::Error::NoEpoch {
            folder: self.folder.to_owned(),
            epoch,
        })
    }

    /// Reads up to the last epoch. Later records are not a state that the source had.
    fn go_to_last(&mut self) -> Result<Option<u64>, log::Error> {
        let mut ahead = self.reader.clone();
        let mut last = None;
        while let Some(located) = ahead.read()? {
            if let Entry::Epoch { number } = located.record.entry {
                last = Some(number);
            }
        }
        last.map(|last| self.to(last).map(|()| last)).transpose()
    }

    fn next_epoch(&mut self) -> Result<Option<u64>, log::Error> {
        while let Some(located) = self.reader.read()? {
            let folded = self.tree.fold(&located.record);
            folded.map_err(|invalid| log::Error::Invalid {
                folder: self.folder.to_owned(),
                invalid,
            })?;
            self.contents.follow(&located);
            match &located.record.entry {
                Entry::Change(Change::Gone { file }) => drop(self.gone.insert(*file)),
                Entry::Renumber { pairs, last } => {
                    if let Some(all) = self.renumbering.follow(pairs, *last) {
                        // The former identifiers are no longer used.
                        self.gone.clear();
                        self.renumbered.push(all);
                    }
                }
                _ => {}
            }
            if let Entry::Epoch { number } = located.record.entry {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

/// A name in a directory.
type Place = (File, Name);

struct Comparison<'a> {
    before: &'a Tree,
    after: &'a Tree,
    /// If one of these inodes exists, another file uses it.
    gone: &'a BTreeSet<File>,
    /// All of the former contents, and what was written since.
    contents: (&'a Contents, &'a Contents),
    sources: (Source, Source),
    all: Vec<Difference>,
}

impl Comparison<'_> {
    fn run(&mut self) -> Result<(), log::Error> {
        let (before, after) = (self.before, self.after);
        let mut gone: BTreeMap<Vec<u8>, File> = BTreeMap::new();
        let mut new: BTreeMap<Vec<u8>, File> = BTreeMap::new();
        for (file, was) in before.files() {
            match after.get(file).filter(|now| self.stays(file, was, now)) {
                Some(now) if Some(file) == before.root() && Some(file) == after.root() => {
                    self.state(Vec::new(), (file, was), (file, now))?;
                }
                Some(now) => self.stayed(file, was, now)?,
                None => gone.extend(was.names.iter().map(|place| (path(before, place), file))),
            }
        }
        for (file, now) in after.files() {
            let was = before.get(file);
            if !was.is_some_and(|was| self.stays(file, was, now)) {
                new.extend(now.names.iter().map(|place| (path(after, place), file)));
            }
        }
        self.roots()?;
        for (path, file) in new {
            // Another file has the name of a removed one, as after an editor's save.
            let replaced = gone
                .remove(&path)
                .and_then(|was| Some((was, before.get(was)?)));
            match (replaced, after.get(file)) {
                (Some((was, old)), Some(now)) if alike(&old.kind, &now.kind) => {
                    self.state(path, (was, old), (file, now))?;
                }
                (Some(_), _) => {
                    self.say(path.clone(), What::Removed);
                    self.say(path, What::Created);
                }
                (None, _) => self.say(path, What::Created),
            }
        }
        for path in gone.into_keys() {
            self.say(path, What::Removed);
        }
        Ok(())
    }

    /// Whether both states are of the same file.
    fn stays(&self, file: File, was: &Node, now: &Node) -> bool {
        !self.gone.contains(&file) && alike(&was.kind, &now.kind)
    }

    /// Compares two different roots, which have no names to be compared by.
    fn roots(&mut self) -> Result<(), log::Error> {
        let (Some(was), Some(now)) = (self.before.root(), self.after.root()) else {
            return Ok(());
        };
        let nodes = (self.before.get(was), self.after.get(now));
        match nodes {
            (Some(old), Some(new)) if was != now => self.state(Vec::new(), (was, old), (now, new)),
            _ => Ok(()),
        }
    }

    /// Compares a file that exists before and after.
    fn stayed(&mut self, file: File, was: &Node, now: &Node) -> Result<(), log::Error> {
        let lost: Vec<&Place> = was.names.difference(&now.names).collect();
        let gained: Vec<&Place> = now.names.difference(&was.names).collect();
        let renamed = lost.len().min(gained.len());
        for (from, to) in lost.iter().zip(&gained) {
            let from = path(self.before, from);
            self.say(path(self.after, to), What::Renamed { from });
        }
        for place in lost.iter().skip(renamed) {
            self.say(path(self.before, place), What::Removed);
        }
        for place in gained.iter().skip(renamed) {
            self.say(path(self.after, place), What::Created);
        }
        // For a file with several names, reports the change at each name that it kept.
        let kept = was.names.intersection(&now.names);
        for place in kept.chain(gained.into_iter().take(renamed)) {
            self.state(path(self.after, place), (file, was), (file, now))?;
        }
        Ok(())
    }

    /// Compares the content and metadata of a path's file, which may have been another file.
    fn state(
        &mut self,
        path: Vec<u8>,
        (file, was): (File, &Node),
        (other, now): (File, &Node),
    ) -> Result<(), log::Error> {
        let same = self.is_same_content((file, was), (other, now))?;
        if !same {
            self.say(path.clone(), What::Content);
        }
        if metadata_differs(was, now, same) {
            self.say(path, What::Metadata);
        }
        Ok(())
    }

    fn is_same_content(
        &mut self,
        (file, was): (File, &Node),
        (other, now): (File, &Node),
    ) -> Result<bool, log::Error> {
        if was.kind != Kind::Regular {
            return Ok(was.kind == now.kind);
        }
        if was.size != now.size {
            return Ok(false);
        }
        let (known, since) = self.contents;
        let Some(written) = since.get(other) else {
            return Ok(true);
        };
        let none = crate::contents::Extents::default();
        let known = known.get(file).unwrap_or(&none);
        let (one, two) = &mut self.sources;
        written.is_same_as(known, now.size, (one, two))
    }

    fn say(&mut self, path: Vec<u8>, what: What) {
        self.all.push(Difference { path, what });
    }
}

/// Whether both are of the same kind, regardless of a symbolic link's target.
fn alike(one: &Kind, other: &Kind) -> bool {
    matches!((one, other), (Kind::Symlink(_), Kind::Symlink(_))) || one == other
}

fn metadata_differs(was: &Node, now: &Node, same_content: bool) -> bool {
    let (Some(one), Some(other)) = (was.attributes, now.attributes) else {
        return was.attributes != now.attributes || was.extended != now.extended;
    };
    let timed = same_content && was.kind != Kind::Directory;
    (one.mode, one.uid, one.gid) != (other.mode, other.uid, other.gid)
        || was.extended != now.extended
        || timed && one.modified_ns != other.modified_ns
}

fn path(tree: &Tree, (directory, name): &Place) -> Vec<u8> {
    let above = tree.path(*directory).unwrap_or_default();
    let names = above.iter().map(Name::as_bytes).chain([name.as_bytes()]);
    names.collect::<Vec<_>>().join(&b'/')
}
