//! The tree as the log says it: what is said of it next, and what of it is in doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::sys::stat::FileStat;

use super::Error;
use super::boundary::Boundary;
use super::comparison::{Comparison, part};
use super::dirty::{DirtyParts, Doubts, everything};
use super::dirty_pages::DirtyPages;
use super::hold_back::HoldBack;
use super::listings::Listings;
use super::mapped_files::MappedFiles;
use super::options::HoldBackOptions;
use super::output::Output;
use super::source::{Source, attributes_of};
use crate::patterns::{Filter, Patterns};
use crate::record::{Change, Entry, File, Kind, Name, Origin, Part};
use crate::tree::{Invalid, Tree};

const SECURITY_LABELS: &[u8] = b"security.";
const DEFAULT_ACCESS: &[u8] = b"system.posix_acl_default";

/// The tree, and what is known of its files beside what was said.
#[derive(Debug)]
pub(super) struct ShadowTree {
    pub(super) source: Source,
    pub(super) tree: Tree,
    /// What is to be handed to the listener.
    pub(super) out: Output,
    /// Something was said since this was reset.
    pub(super) said: bool,
    /// What is to be read.
    pub(super) doubts: Doubts,
    /// What of that is no state yet that a file had.
    pub(super) hold_back: HoldBack,
    /// The number of the event that is derived from.
    pub(super) event: Option<u64>,
    /// A directory without a name, of which all names have been read to find it.
    pub(super) adrift: Option<File>,
    /// With the log that is taken up, until its first epoch.
    pub(super) comparison: Comparison,
    /// Bytes that were read from the source instead of seen.
    pub(super) read_back: u64,
    /// What had to be read.
    pub(super) dirty_pages: DirtyPages,
    /// Files that change without a word.
    pub(super) mapped: MappedFiles,
    /// Files that are made, and of which it is not known yet what they are.
    pub(super) fresh: BTreeSet<File>,
    /// Files that are held, and may have no name in the tree any more.
    nameless: BTreeSet<File>,
    /// Files that are in the log, and may be outside of the tree.
    strayed: BTreeSet<File>,
    /// How many names of a file with several are not in the tree.
    outside: BTreeMap<File, usize>,
    boundary: Boundary,
}

impl ShadowTree {
    pub(super) fn new(source: Source, filter: Filter, hold_back: &HoldBackOptions) -> Self {
        Self {
            source,
            tree: Tree::default(),
            out: Output::default(),
            said: true,
            doubts: Doubts::new(),
            hold_back: HoldBack::new(hold_back),
            event: None,
            adrift: None,
            comparison: Comparison::default(),
            read_back: 0,
            dirty_pages: DirtyPages::default(),
            mapped: MappedFiles::default(),
            fresh: BTreeSet::new(),
            nameless: BTreeSet::new(),
            strayed: BTreeSet::new(),
            outside: BTreeMap::new(),
            boundary: Boundary::new(filter),
        }
    }

    /// These follow anything: a start, and what the log is to have after one.
    pub(super) fn begin(&mut self, entry: Entry) {
        let _always = self.tree.enter(&entry);
        self.out.push(entry);
    }

    /// Says which tree it is, where the log does not say so already.
    pub(super) fn identify(&mut self) -> Result<(), Error> {
        let source = self.source.identity()?;
        if self.tree.source() != Some(&source) {
            self.begin(Entry::Source(source));
        }
        Ok(())
    }

    /// Says what the log is to have, where it does not say so already.
    pub(super) fn select(&mut self, patterns: &Patterns) {
        if self.tree.patterns() != patterns {
            self.begin(Entry::Patterns(patterns.clone()));
        }
    }

    /// Takes up what the log has in doubt already, and nobody to settle it.
    pub(super) fn take_doubts_of_log(&mut self) {
        for (file, part) in self.tree.in_doubt() {
            self.doubts.entry(file).or_default().add(&part);
        }
    }

    /// Says something; what cannot follow is put in doubt.
    pub(super) fn say(&mut self, change: Change) {
        let entry = Entry::Change(change);
        match self.tree.enter(&entry) {
            Ok(()) => {
                if let Entry::Change(change) = &entry {
                    self.comparison.follow(change);
                    self.boundary.follow(change);
                    self.mapped.follow(change);
                }
                self.hold_back
                    .take(entry, self.event, &self.doubts, &mut self.out);
                self.said = true;
            }
            Err(invalid) => self.distrust(&invalid),
        }
    }

    /// These are being read.
    pub(super) fn begin_reading(&mut self, doubts: &Doubts) {
        self.hold_back.begin_reading(doubts);
    }

    /// What was read has been said. Hands on what is a state that a file had; false where some file changed while it was
    /// read.
    pub(super) fn end_reading(&mut self, doubts: Doubts) -> bool {
        self.settle(doubts);
        self.hold_back.end_reading(&self.doubts, &mut self.out)
    }

    /// Hands on what is kept of files that are known as they are now. No operation may be under way.
    pub(super) fn release(&mut self) {
        self.hold_back.release(&self.doubts, &mut self.out);
    }

    /// Files that an epoch would have in an earlier state; none where it has to wait: for names, and for files that have
    /// not been read so many times in vain, of which most will rest soon.
    pub(super) fn stale(&self, times: u32) -> Option<BTreeSet<File>> {
        let stale = self.hold_back.stale(&self.doubts, times)?;
        let known = stale.iter().all(|file| self.tree.get(*file).is_some());
        known.then_some(stale)
    }

    /// Whether names of some directory are in doubt.
    pub(super) fn waits_for_names(&self) -> bool {
        self.doubts.values().any(|doubt| doubt.names)
    }

    /// Whether the last epoch has all that is known.
    pub(super) fn is_told(&self) -> bool {
        !self.said && self.doubts.is_empty() && self.hold_back.is_empty()
    }

    /// Says bytes that were read.
    pub(super) fn say_read_back(&mut self, file: File, offset: u64, bytes: Vec<u8>) {
        self.read_back += bytes.len() as u64;
        self.say(Change::Data {
            file,
            offset,
            bytes,
            origin: Origin::ReadBack,
        });
    }

    /// Says bytes that were read, but for blocks that the log is known to have so.
    pub(super) fn say_differences(
        &mut self,
        file: File,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        let differences = self.comparison.differences(file, offset, &bytes)?;
        if differences == [(offset, offset + bytes.len() as u64)] {
            self.say_read_back(file, offset, bytes);
            return Ok(());
        }
        for (from, to) in differences {
            let said = part(&bytes, from - offset, to - offset).to_vec();
            self.say_read_back(file, from, said);
        }
        Ok(())
    }

    /// Says a hole that was found, unless the log is known to have it.
    pub(super) fn say_hole(&mut self, file: File, offset: u64, length: u64) {
        if !self.comparison.has_hole(file, offset, length) {
            self.say(Change::Hole {
                file,
                offset,
                length,
            });
        }
    }

    pub(super) fn say_size(&mut self, file: File, size: u64) {
        if self.tree.get(file).is_some_and(|node| node.size != size) {
            self.say(Change::Size { file, size });
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
            | Invalid::Unknown { file } => self.raise_file_doubts(file),
            Invalid::Cycle { file, directory } => {
                self.raise_file_doubts(file);
                self.raise_file_doubts(directory);
            }
            Invalid::NoEntry { directory, .. } => self.raise_doubt(directory, Part::Names),
            Invalid::Adrift { file } if self.adrift == Some(file) => self.remove_below(file),
            Invalid::Adrift { file } => {
                self.adrift = Some(file);
                self.raise_tree_doubts();
            }
            Invalid::Gap { .. }
            | Invalid::NoStart
            | Invalid::Epoch { .. }
            | Invalid::Term { .. }
            | Invalid::Renumber(_)
            | Invalid::Doubt { .. } => {}
        }
    }

    pub(super) fn raise_doubt(&mut self, file: File, part: Part) {
        self.disturb(file, &part);
        if let Part::Range { offset, length } = part {
            self.dirty_pages.add(file, offset, length);
        }
        if self.doubts.entry(file).or_default().add(&part) {
            self.say(Change::Doubt { file, part });
        }
    }

    /// Puts a range in doubt of which another write will be told by itself.
    pub(super) fn raise_write_doubt(&mut self, file: File, offset: u64, length: u64) {
        let part = Part::Range { offset, length };
        self.disturb(file, &part);
        self.dirty_pages.add(file, offset, length);
        if self.doubts.entry(file).or_default().add_written(&part) {
            self.say(Change::Doubt { file, part });
        }
    }

    /// What was read of the file may be no state that it had.
    fn disturb(&mut self, file: File, part: &Part) {
        if *part != Part::Names {
            self.hold_back.disturb(file, self.event);
        }
    }

    /// Puts whole pages in doubt: a store to a mapped file may be anywhere in one.
    pub(super) fn raise_page_doubt(&mut self, file: File, offset: u64, length: u64) {
        let start = offset & !0xfff;
        let end = offset.saturating_add(length);
        let end = end.checked_next_multiple_of(0x1000).unwrap_or(u64::MAX);
        let length = if end == u64::MAX { end } else { end - start };
        self.raise_doubt(
            file,
            Part::Range {
                offset: start,
                length,
            },
        );
    }

    /// Nothing of the file is known any more, nor of the directories that it was in.
    pub(super) fn raise_file_doubts(&mut self, file: File) {
        let (kind, names) = match self.tree.get(file) {
            Some(node) => (Some(node.kind.clone()), node.names.clone()),
            None => (None, BTreeSet::new()),
        };
        // One that is not known yet may turn out to be either.
        if kind.as_ref().is_none_or(|kind| *kind == Kind::Directory) {
            self.raise_doubt(file, Part::Names);
        }
        if kind != Some(Kind::Directory) {
            self.raise_doubt(file, everything());
        }
        self.raise_doubt(file, Part::Attributes);
        for (directory, _) in names {
            self.raise_doubt(directory, Part::Names);
        }
    }

    /// Until it is settled there is no epoch.
    pub(super) fn raise_root_doubts(&mut self) {
        let root = self.source.name();
        self.raise_doubt(root, Part::Names);
        self.raise_doubt(root, Part::Attributes);
    }

    /// A file has a name that nobody knows.
    pub(super) fn raise_tree_doubts(&mut self) {
        let all = self.tree.files();
        let directories: Vec<_> = all
            .filter(|(_, node)| node.kind == Kind::Directory)
            .map(|(file, _)| file)
            .collect();
        for directory in directories {
            self.raise_doubt(directory, Part::Names);
        }
    }

    /// Which names the file has is to be read: where it had one, and in the directory where it may have.
    pub(super) fn raise_name_doubts(&mut self, file: File, known: Option<File>) {
        let directories: BTreeSet<_> = self
            .names_of(file)
            .into_iter()
            .map(|(directory, _)| directory)
            .chain(known)
            .filter(|directory| self.is(*directory, &Kind::Directory))
            .collect();
        for directory in directories {
            self.raise_doubt(directory, Part::Names);
        }
    }

    /// That the last user of a file has left it may have been lost.
    pub(super) fn raise_nameless_doubts(&mut self) {
        let root = self.tree.root();
        let files = self.tree.files();
        let nameless: Vec<_> = files
            .filter(|(file, node)| node.names.is_empty() && Some(*file) != root)
            .map(|(file, _)| file)
            .collect();
        for file in nameless {
            self.raise_doubt(file, Part::Attributes);
            self.note_stray(file);
        }
    }

    /// What a file that is made may have of its directory.
    pub(super) fn raise_inherited_doubt(&mut self, file: File, directory: File) {
        let parent = self.tree.get(directory);
        let passed_on = |name: &[u8]| name == DEFAULT_ACCESS || name.starts_with(SECURITY_LABELS);
        let inherits =
            parent.is_some_and(|node| node.extended.iter().any(|(name, _)| passed_on(name)));
        // What is being read of the directory may say so.
        if inherits || self.tree.is_in_doubt(directory, &Part::Attributes) {
            self.raise_doubt(file, Part::Attributes);
        }
    }

    /// Puts these parts of a file in doubt, and which names there are where it is. The path is below the root; a file
    /// that was not said has no parts yet, and is all read.
    pub(super) fn suspect(&mut self, path: &Path, parts: &[Part]) {
        let Some(mut file) = self.tree.root() else {
            return;
        };
        let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
        let mut directory = file;
        for name in names.filter_map(|name| Name::new(name).ok()) {
            directory = file;
            let Some(below) = self.tree.child(directory, &name) else {
                self.raise_doubt(directory, Part::Names);
                return;
            };
            file = below;
        }
        self.raise_doubt(directory, Part::Names);
        let kind = self.tree.get(file).map(|node| node.kind.clone());
        for part in parts {
            let fits = match part {
                Part::Range { .. } => kind == Some(Kind::Regular),
                Part::Names => kind == Some(Kind::Directory),
                Part::Attributes => true,
            };
            if fits {
                self.raise_doubt(file, part.clone());
            }
        }
    }

    /// Says that what was in doubt has been read, but for what is in doubt since.
    pub(super) fn settle(&mut self, doubts: Doubts) {
        for (file, doubt) in doubts {
            let since = self.doubts.get_mut(&file);
            for part in doubt.settled(since) {
                self.say(Change::Settled { file, part });
            }
        }
    }

    /// Makes stores to what is in doubt ones that are seen.
    pub(super) fn clean(&mut self, file: File, doubt: &DirtyParts) -> Result<(), Error> {
        if doubt.stores && self.is(file, &Kind::Regular) {
            // What is held is cleaned as a whole.
            let most = if self.source.is_overlay() {
                1
            } else {
                usize::MAX
            };
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
            Some(true) => self.mapped.insert(file),
            Some(false) => self.mapped.remove(file),
            None => {}
        }
        Ok(())
    }

    pub(super) fn is(&self, file: File, kind: &Kind) -> bool {
        self.tree.get(file).is_some_and(|node| node.kind == *kind)
    }

    pub(super) fn names_of(&self, file: File) -> BTreeSet<(File, Name)> {
        let node = self.tree.get(file);
        node.map(|node| node.names.clone()).unwrap_or_default()
    }

    /// What the log has at a path below the root.
    pub(super) fn at(&self, path: &Path) -> Option<File> {
        let tree = &self.tree;
        path.iter().try_fold(tree.root()?, |directory, name| {
            tree.child(directory, &Name::new(name.as_bytes()).ok()?)
        })
    }

    /// Whether all files that were found are known to be in the tree.
    pub(super) fn has_all(&self, entries: &[(Name, File)]) -> bool {
        let known = |file: &File| self.tree.get(*file).is_some() && !self.strayed.contains(file);
        entries.iter().all(|(_, file)| known(file))
    }

    /// Whether more of a file's names are unknown than were: as many as are outside of the tree always are.
    pub(super) fn lacks_more_names(&mut self, file: File, links: u32, known: usize) -> bool {
        let links = usize::try_from(links).unwrap_or(usize::MAX);
        let lacks = links.saturating_sub(known);
        let before = match lacks {
            0 => self.outside.remove(&file),
            _ => self.outside.insert(file, lacks),
        };
        lacks > before.unwrap_or(0)
    }

    pub(super) fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    /// Whether a name in a directory of the tree belongs to it.
    pub(super) fn admits(&self, directory: File, name: &Name, is_directory: bool) -> bool {
        self.boundary
            .admits(&self.tree, directory, name, is_directory)
    }

    /// A directory that no path leads to, where that matters.
    pub(super) fn is_nowhere(&self, file: File) -> bool {
        !self.boundary.is_open()
            && self.is(file, &Kind::Directory)
            && self.tree.path(file).is_none()
    }

    /// The names in a directory that belong to the tree; none where it is gone.
    pub(super) fn list(&mut self, directory: File) -> Result<Option<Vec<(Name, File)>>, Error> {
        let Some(filter) = self.boundary.of_directory(&self.tree, directory) else {
            // What in it belongs, nobody can say: where it has a name, it will be found.
            self.remove_below(directory);
            return Ok(None);
        };
        let listed = self
            .source
            .list(directory, |name, kind| filter.admits(name, kind));
        for (directory, name) in self.source.take_subvolumes() {
            let above = self.tree.path(directory).unwrap_or_default();
            let names = above.iter().chain([&name]).map(Name::as_bytes);
            let path = names.collect::<Vec<_>>().join(&b'/');
            let path = path.escape_ascii();
            tracing::warn!("./{path} is a subvolume, and no part of the tree: it is left out");
        }
        listed
    }

    pub(super) fn link(&mut self, directory: File, name: Name, file: File) {
        self.break_cycle(directory, file);
        let before = self.tree.child(directory, &name);
        let moves = self.is_moved_by_link(file);
        self.say(Change::Link {
            directory,
            name,
            file,
        });
        if let Some(before) = before {
            self.note_lost_name(before);
        }
        if moves {
            self.reconsider(file);
        }
    }

    pub(super) fn unlink(&mut self, directory: File, name: &Name) {
        if let Some(file) = self.tree.child(directory, name) {
            self.say(Change::Unlink {
                directory,
                name: name.clone(),
            });
            self.note_lost_name(file);
            self.note_stray(file);
        }
    }

    /// Takes away names that a directory does not have any more.
    pub(super) fn unlink_missing(&mut self, directory: File, names: &BTreeSet<Name>) {
        let missing: Vec<_> = self
            .tree
            .children(directory)
            .filter(|(name, _)| !names.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in missing {
            self.unlink(directory, &name);
        }
    }

    /// Whether what is in a directory may belong where it did not, once it has its next name.
    fn is_moved_by_link(&mut self, file: File) -> bool {
        if self.boundary.is_open() || !self.is(file, &Kind::Directory) {
            return false;
        }
        let has_name = !self.names_of(file).is_empty();
        self.boundary.is_moved_by_link(file, has_name)
    }

    /// All directories from this one down are read again.
    fn reconsider(&mut self, directory: File) {
        let mut below = vec![directory];
        while let Some(directory) = below.pop() {
            self.raise_doubt(directory, Part::Names);
            let children = self.tree.children(directory).map(|(_, child)| child);
            below.extend(children.filter(|child| self.is(*child, &Kind::Directory)));
        }
    }

    /// Where a directory comes to lie in what was below it, that has been moved out before, as will
    /// be told.
    fn break_cycle(&mut self, directory: File, file: File) {
        let mut at = directory;
        while at != file {
            let Some((above, name)) = self.names_of(at).pop_first() else {
                return;
            };
            if above == file {
                self.unlink(above, &name);
                self.raise_doubt(above, Part::Names);
                self.raise_doubt(at, Part::Attributes);
                return;
            }
            at = above;
        }
    }

    fn note_lost_name(&mut self, file: File) {
        if self.source.is_overlay() || !self.boundary.is_open() || self.source.has_outside() {
            self.nameless.insert(file);
        }
    }

    /// Without a name the file may be outside of the tree, where nobody tells what becomes of it.
    pub(super) fn note_stray(&mut self, file: File) {
        if self.source.has_outside() && self.names_of(file).is_empty() {
            self.strayed.insert(file);
            self.nameless.insert(file);
        }
    }

    /// What has come back from outside is as unknown as what was never in the tree.
    pub(super) fn note_return(&mut self, file: File) {
        if self.strayed.remove(&file) && self.names_of(file).is_empty() {
            self.remove_below(file);
        }
    }

    /// A directory is outside of the tree now, and with it what has no other name.
    pub(super) fn remove_below(&mut self, directory: File) {
        let mut left = vec![directory];
        while let Some(file) = left.pop() {
            let inside: Vec<_> = self.tree.children(file).map(|(_, child)| child).collect();
            self.remove(file);
            left.extend(
                inside
                    .into_iter()
                    .filter(|child| self.names_of(*child).is_empty()),
            );
        }
    }

    /// It is not there any more, and nothing is in it.
    pub(super) fn remove(&mut self, file: File) {
        self.source.forget(file);
        self.replace(file);
    }

    /// What is there is another with the same number.
    pub(super) fn replace(&mut self, file: File) {
        self.fresh.remove(&file);
        self.strayed.remove(&file);
        self.outside.remove(&file);
        if self.tree.get(file).is_none() {
            return;
        }
        for (directory, name) in self.names_of(file) {
            self.unlink(directory, &name);
        }
        self.unlink_missing(file, &BTreeSet::new());
        self.doubts.remove(&file);
        self.hold_back.forget(file);
        self.mapped.remove(file);
        self.say(Change::Gone { file });
    }

    /// Lets go of what has no name in the tree: nobody tells when its last user leaves it, or what becomes of it outside.
    /// Where it gets a name again, that directory is read. Nothing may be in doubt.
    pub(super) fn remove_nameless(&mut self) {
        while let Some(file) = self.nameless.pop_first() {
            if self.names_of(file).is_empty() && Some(file) != self.tree.root() {
                self.remove(file);
            }
        }
    }

    /// It is gone, or called otherwise by now: ext4 can give a file another generation, without an event for its names.
    pub(super) fn vanish(&mut self, file: File) -> Result<(), Error> {
        if self.source.format().exact() {
            for (directory, name) in self.names_of(file) {
                if self.source.inode_of(directory, &name)? == Some(file.inode) {
                    self.raise_doubt(directory, Part::Names);
                }
            }
        }
        self.remove(file);
        Ok(())
    }

    /// Whether the file is what it was. One of a lower directory becomes another when it is copied up, if
    /// it had several names: each is a file of its own then.
    pub(super) fn recognise(&mut self, file: File, stat: &FileStat) -> Result<bool, Error> {
        if !self.source.is_overlay() || Some(file) == self.tree.root() {
            return Ok(true);
        }
        let names = self.names_of(file);
        if stat.st_ino != file.inode {
            for (directory, _) in names {
                self.raise_doubt(directory, Part::Names);
            }
            self.source.forget(file);
            self.raise_doubt(file, Part::Attributes);
            return Ok(false);
        }
        if names.len() > 1 {
            for (directory, name) in names {
                if self.source.inode_of(directory, &name)? != Some(file.inode) {
                    self.raise_doubt(directory, Part::Names);
                }
            }
        }
        Ok(true)
    }

    /// Says the attributes that were read. Names that `listings` lack will be taken away. The size before, where it has
    /// grown: what was written behind that is to be read with it, because appends are told by the size that is known.
    pub(super) fn update_attributes(
        &mut self,
        file: File,
        stat: &FileStat,
        listings: &Listings,
    ) -> Result<Option<u64>, Error> {
        let Some(node) = self.tree.get(file) else {
            return Ok(None);
        };
        let before = node.size;
        let attributes = attributes_of(stat);
        let (kind, known) = (node.kind.clone(), node.attributes);
        let stays = |(directory, name): &&(File, Name)| listings.keeps(*directory, name);
        let names = node.names.iter().filter(stays).count() as u64;
        if kind == Kind::Regular {
            self.say_size(file, u64::try_from(stat.st_size).unwrap_or(0));
        }
        if known != Some(attributes) {
            self.say(Change::Attributes { file, attributes });
        }
        if let Some(all) = self.source.extended(file)?
            && self.tree.get(file).is_some_and(|node| node.extended != all)
        {
            self.say(Change::Extended { file, all });
        }
        if kind != Kind::Directory && names > stat.st_nlink {
            for (directory, _) in self.names_of(file) {
                self.raise_doubt(directory, Part::Names);
            }
        }
        let grown = self.tree.get(file).is_some_and(|node| node.size > before);
        Ok(grown.then_some(before))
    }
}
