//! Derives changes from events: what can be said at once, and what has to be read first.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::stat::makedev;

use super::Error;
use super::calls;
use super::doubt::{Doubt, Doubts, everything};
use super::event::{Event, Flags, State, What};
use super::group::Told;
use super::look::Looked;
use super::rescan::Comparison;
use super::source::{Source, kind_of};
use crate::patterns::Filter;
use crate::record::{Attributes, Change, Entry, File, Kind, Origin, Part};
use crate::tree::{Invalid, Tree};

const SYMLINK: u16 = 0o120_000;
const SECURITY_LABELS: &[u8] = b"security.";
const DEFAULT_ACCESS: &[u8] = b"system.posix_acl_default";

/// The tree as it has been told, and what is to be told next.
#[derive(Debug)]
pub(super) struct Deriver {
    pub(super) source: Source,
    pub(super) tree: Tree,
    pub(super) out: Vec<Entry>,
    /// Something was said since this was reset.
    pub(super) said: bool,
    /// What is to be read.
    pub(super) doubts: Doubts,
    /// Files that are made, and of which it is not known yet what they are.
    pub(super) fresh: BTreeSet<File>,
    /// A directory without a name, of which all names have been read to find it.
    pub(super) adrift: Option<File>,
    /// What a log that is taken up says, until its first epoch.
    pub(super) comparison: Option<Comparison>,
    /// What operations that are being told have touched.
    pub(super) told: BTreeMap<u32, Told>,
    /// Files that change without a word, and what they had when they were looked at last.
    pub(super) mapped: BTreeMap<File, Looked>,
    /// Files that are held, and may have no name in the tree any more.
    pub(super) nameless: BTreeSet<File>,
    /// Files that are in the log, and may be outside of the tree.
    pub(super) strayed: BTreeSet<File>,
    /// How many names of a file with several are not in the tree.
    pub(super) outside: BTreeMap<File, usize>,
    /// What belongs to the tree.
    pub(super) filter: Filter,
    /// Directories that were said to be new, and have no name yet.
    pub(super) newborn: BTreeSet<File>,
}

impl Deriver {
    pub(super) fn new(source: Source, filter: Filter) -> Self {
        Self {
            source,
            tree: Tree::default(),
            out: Vec::new(),
            said: true,
            doubts: Doubts::new(),
            fresh: BTreeSet::new(),
            adrift: None,
            comparison: None,
            told: BTreeMap::new(),
            mapped: BTreeMap::new(),
            nameless: BTreeSet::new(),
            strayed: BTreeSet::new(),
            outside: BTreeMap::new(),
            filter,
            newborn: BTreeSet::new(),
        }
    }

    /// Says something; what cannot follow is put in doubt.
    pub(super) fn say(&mut self, change: Change) {
        let entry = Entry::Change(change);
        match self.tree.enter(&entry) {
            Ok(()) => {
                if let (Some(comparison), Entry::Change(change)) = (&mut self.comparison, &entry) {
                    comparison.overtaken(change);
                }
                if let Entry::Change(change) = &entry {
                    self.note_birth(change);
                    self.forget_look(change);
                }
                self.out.push(entry);
                self.said = true;
            }
            Err(invalid) => self.distrust(&invalid),
        }
    }

    /// Reads again what the tree cannot be right about.
    pub(super) fn distrust(&mut self, invalid: &Invalid) {
        match *invalid {
            Invalid::Again { file }
            | Invalid::InUse { file }
            | Invalid::NoDirectory { file }
            | Invalid::NoContent { file }
            | Invalid::TooLarge { file, .. }
            | Invalid::Unknown { file } => self.doubt_all(file),
            Invalid::Cycle { file, directory } => {
                self.doubt_all(file);
                self.doubt_all(directory);
            }
            Invalid::NoEntry { directory, .. } => self.doubt(directory, Part::Names),
            Invalid::Adrift { file } if self.adrift == Some(file) => self.leave(file),
            Invalid::Adrift { file } => {
                self.adrift = Some(file);
                self.doubt_all_names();
            }
            Invalid::Gap { .. }
            | Invalid::NoStart
            | Invalid::Epoch { .. }
            | Invalid::Doubt { .. } => {}
        }
    }

    pub(super) fn doubt(&mut self, file: File, part: Part) {
        if self.doubts.entry(file).or_default().add(&part) {
            self.say(Change::Doubt { file, part });
        }
    }

    /// Nothing of the file is known any more, nor of the directories that it was in.
    pub(super) fn doubt_all(&mut self, file: File) {
        let (kind, names) = match self.tree.get(file) {
            Some(node) => (Some(node.kind.clone()), node.names.clone()),
            None => (None, BTreeSet::new()),
        };
        // One that is not known yet may turn out to be either.
        if kind.as_ref().is_none_or(|kind| *kind == Kind::Directory) {
            self.doubt(file, Part::Names);
        }
        if kind != Some(Kind::Directory) {
            self.doubt(file, everything());
        }
        self.doubt(file, Part::Attributes);
        for (directory, _) in names {
            self.doubt(directory, Part::Names);
        }
    }

    /// What the event would have changed is to be read: events after it have been told.
    pub(super) fn late(&mut self, event: &Event) {
        if event.what == What::Left {
            return self.has_been_out(event.file);
        }
        self.doubt_all(event.file);
        if let What::New(state) | What::State(state) | What::Unlink(state) = &event.what {
            let named = state.name.as_ref().map(|(directory, _)| *directory);
            self.doubt(named.unwrap_or(state.parent), Part::Names);
        }
    }

    /// Makes stores to what is in doubt ones that are seen.
    pub(super) fn clean(&mut self, file: File, doubt: &Doubt) -> Result<(), Error> {
        if doubt.stores && self.is(file, &Kind::Regular) {
            // What is held is cleaned as a whole.
            let most = if self.source.holds() { 1 } else { usize::MAX };
            for (start, end) in doubt.ranges.iter().take(most) {
                self.clean_range(file, *start, end - start)?;
            }
        }
        Ok(())
    }

    /// As [`Self::clean`], of a file whatever is in doubt.
    pub(super) fn clean_range(&mut self, file: File, start: u64, length: u64) -> Result<(), Error> {
        let mapped = self.source.clean(file, start, length)?;
        match mapped.filter(|_| self.source.format().silent()) {
            Some(true) => drop(self.mapped.entry(file).or_default()),
            Some(false) => drop(self.mapped.remove(&file)),
            None => {}
        }
        Ok(())
    }

    pub(super) fn event(&mut self, event: Event) -> Result<(), Error> {
        let Event {
            file, flags, what, ..
        } = event;
        if let What::State(state) = &what
            && state.links > 0
        {
            self.returned(file);
            if flags.outside() {
                self.has_left(file, state);
            }
        }
        let regular = self.is(file, &Kind::Regular);
        self.missed(file, &what);
        match what {
            What::Data { offset, bytes } if regular => self.say(Change::Data {
                file,
                offset,
                bytes,
                origin: Origin::Exact,
            }),
            What::Range { offset, length } if regular => self.doubt_range(file, offset, length),
            What::Written { offset, length } if regular => self.doubt_written(file, offset, length),
            What::Size(size) if regular => self.size(file, size),
            What::New(state) => self.created(file, &state),
            What::State(state) if flags.vague() => self.vague(file, flags, &state),
            What::State(state) if !self.source.format().exact() => {
                self.written(file, flags, &state);
            }
            What::State(state) => self.state(file, flags, &state)?,
            What::Unlink(state) => {
                if let Some((directory, name)) = &state.name {
                    self.unlinked(file, *directory, name);
                }
            }
            What::Gone => self.gone(file),
            What::Left => self.has_been_out(file),
            What::Mapped(true) if regular => {
                self.mapped.entry(file).or_default();
            }
            What::Mapped(_) => {
                self.mapped.remove(&file);
            }
            // What is no regular file has no bytes.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn is(&self, file: File, kind: &Kind) -> bool {
        self.tree.get(file).is_some_and(|node| node.kind == *kind)
    }

    /// Another write to it will be told by itself.
    fn doubt_written(&mut self, file: File, offset: u64, length: u64) {
        let part = Part::Range { offset, length };
        if self.doubts.entry(file).or_default().add_written(&part) {
            self.say(Change::Doubt { file, part });
        }
    }

    /// Whole pages: a store to a mapped file may be anywhere in one.
    fn doubt_range(&mut self, file: File, offset: u64, length: u64) {
        let start = offset & !0xfff;
        let end = offset.saturating_add(length);
        let end = end.checked_next_multiple_of(0x1000).unwrap_or(u64::MAX);
        let length = if end == u64::MAX { end } else { end - start };
        self.doubt(
            file,
            Part::Range {
                offset: start,
                length,
            },
        );
    }

    pub(super) fn size(&mut self, file: File, size: u64) {
        if self.tree.get(file).is_some_and(|node| node.size != size) {
            self.say(Change::Size { file, size });
        }
    }

    fn created(&mut self, file: File, state: &State) {
        // The programs take what has no name yet for the tree's.
        let outside = self.source.has_outside() && !self.is(state.parent, &Kind::Directory);
        if outside || self.tree.get(file).is_some() {
            return;
        }
        if !self.filter.is_empty() {
            self.made(file, state);
            return;
        }
        match kind_of(state.mode.into(), 0) {
            Some(kind @ (Kind::Regular | Kind::Directory | Kind::Fifo | Kind::Socket)) => {
                self.say(Change::New { file, kind });
            }
            _ => {
                self.fresh.insert(file);
            }
        }
        self.inherit(file, state.parent);
    }

    /// What a file that is made may have of its directory.
    pub(super) fn inherit(&mut self, file: File, directory: File) {
        let parent = self.tree.get(directory);
        let passed_on = |name: &[u8]| name == DEFAULT_ACCESS || name.starts_with(SECURITY_LABELS);
        let inherits =
            parent.is_some_and(|node| node.extended.iter().any(|(name, _)| passed_on(name)));
        // What is being read of the directory may say so.
        if inherits || self.tree.is_in_doubt(directory, &Part::Attributes) {
            self.doubt(file, Part::Attributes);
        }
    }

    /// A file that is made, and now known to be what it is.
    fn completed(&mut self, file: File, flags: Flags, state: &State) -> Result<(), Error> {
        if !self.fresh.contains(&file) || state.mode == 0 || !self.settles(file, flags, state) {
            return Ok(());
        }
        let device = makedev(
            u64::from(state.device >> 20),
            u64::from(state.device & 0xf_ffff),
        );
        let kind = if state.mode & 0o170_000 == SYMLINK {
            self.source.target(file)?.map(Kind::Symlink)
        } else {
            kind_of(state.mode.into(), device)
        };
        if let Some(kind) = kind {
            self.fresh.remove(&file);
            self.say(Change::New { file, kind });
            self.settled_late(file, state);
        }
        Ok(())
    }

    fn state(&mut self, file: File, flags: Flags, state: &State) -> Result<(), Error> {
        self.completed(file, flags, state)?;
        let before = self.held(file);
        if self.tree.get(file).is_none() {
            self.unknown(flags, state);
        } else if state.mode == 0 {
            // Its memory is another's by now: whether it still has a name is to be seen.
            self.doubt(file, Part::Attributes);
        } else {
            self.attributes(file, state);
            if flags.in_the_middle() {
                self.doubt_names(file, state);
            } else {
                self.names(file, state);
            }
            if flags.extended() || flags.in_the_middle() || flags.overflown() {
                self.doubt(file, Part::Attributes);
            }
        }
        let directory = self.is(file, &Kind::Directory);
        if directory && (flags.in_the_middle() || flags.overflown()) {
            self.doubt(file, Part::Names);
        }
        self.group(file, flags, state, &before);
        Ok(())
    }

    /// A file that was there before, and comes into the tree: its directory is to be read.
    pub(super) fn unknown(&mut self, flags: Flags, state: &State) {
        if let Some((directory, name)) = &state.name
            && self.is(*directory, &Kind::Directory)
            && self.may_belong((*directory, name), flags, state)
        {
            self.doubt(*directory, Part::Names);
        }
    }

    pub(super) fn attributes(&mut self, file: File, state: &State) {
        let Some(node) = self.tree.get(file) else {
            return;
        };
        let attributes = Attributes {
            mode: state.mode & 0o7777,
            uid: state.uid,
            gid: state.gid,
            modified_ns: state.modified_ns,
        };
        let differs = node.attributes != Some(attributes);
        // A write is told before the size has grown by it: only who cuts a file off says that it is
        // shorter, under its lock.
        let (regular, node_size) = (node.kind == Kind::Regular, node.size);
        let grown = regular && state.size > node_size;
        if grown {
            self.size(file, state.size);
        } else if node_size > state.size && regular {
            // Or something was written behind its end, where it has no bytes.
            self.doubt(file, Part::Attributes);
        }
        if differs {
            self.say(Change::Attributes { file, attributes });
        }
    }

    fn names(&mut self, file: File, state: &State) {
        if Some(file) == self.tree.root() {
            // Where it lies is outside of the tree.
            return;
        }
        let held = self.held(file);
        if state.links == 0 {
            for (directory, name) in held {
                self.unlink(directory, &name);
            }
            return;
        }
        let Some((directory, name)) = &state.name else {
            if held.is_empty() {
                self.doubt_all_names();
            }
            return;
        };
        let is_directory = self.is(file, &Kind::Directory);
        if !self.is(*directory, &Kind::Directory) || !self.admits(*directory, name, is_directory) {
            // It has moved out of the tree, or another of its names is there.
            self.doubt_names(file, state);
            if is_directory {
                self.leave(file);
            }
            return;
        }
        if self.tree.child(*directory, name) != Some(file) {
            if state.links > 1 && !is_directory && !calls::names(state.call) {
                // Another call, still under way, may be taking it.
                self.doubt(*directory, Part::Names);
                return;
            }
            self.link(*directory, name.clone(), file);
        }
        if is_directory {
            return;
        }
        let held = self.held(file);
        if held.len() <= usize::try_from(state.links).unwrap_or(usize::MAX) {
            return;
        }
        if state.links > 1 || !calls::renames(state.call) {
            // Another call, still under way, may have taken any of them.
            self.doubt_names(file, state);
            return;
        }
        for (other, old) in held {
            if (other, &old) != (*directory, name) {
                self.unlink(other, &old);
            }
        }
    }

    /// A file has a name that nobody knows.
    pub(super) fn doubt_all_names(&mut self) {
        let all = self.tree.files();
        let directories: Vec<_> = all
            .filter(|(_, node)| node.kind == Kind::Directory)
            .map(|(file, _)| file)
            .collect();
        for directory in directories {
            self.doubt(directory, Part::Names);
        }
    }

    /// Which names the file has is to be read: where it had one, and where it may have.
    pub(super) fn doubt_names(&mut self, file: File, state: &State) {
        let known = state.name.iter().map(|(directory, _)| *directory);
        let directories: BTreeSet<_> = self
            .held(file)
            .into_iter()
            .map(|(directory, _)| directory)
            .chain(known)
            .filter(|directory| self.is(*directory, &Kind::Directory))
            .collect();
        for directory in directories {
            self.doubt(directory, Part::Names);
        }
    }
}
