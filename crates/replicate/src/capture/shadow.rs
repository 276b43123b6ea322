//! The tree as the log has it, with the changes to record next and the parts that are in doubt.

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

/// The tree, and what the capture knows of its files beyond the recorded state.
#[derive(Debug)]
pub(super) struct ShadowTree {
    pub(super) source: Source,
    pub(super) tree: Tree,
    /// Entries to hand to the listener.
    pub(super) out: Output,
    /// Something was recorded since this flag was reset.
    pub(super) said: bool,
    /// The parts of files that have to be read back.
    pub(super) doubts: Doubts,
    /// Recorded changes that do not yet add up to a state that the file had.
    pub(super) hold_back: HoldBack,
    /// The number of the event that is being processed.
    pub(super) event: Option<u64>,
    /// A directory without a name. All directories have been read to find its name.
    pub(super) adrift: Option<File>,
    /// The comparison with the log that is continued, until the first epoch.
    pub(super) comparison: Comparison,
    /// The number of bytes that were read back from the source instead of captured at the write.
    pub(super) read_back: u64,
    /// The page ranges that had to be read.
    pub(super) dirty_pages: DirtyPages,
    /// Memory-mapped files whose stores are not reported.
    pub(super) mapped: MappedFiles,
    /// Files that are being created, and whose kind is not known yet.
    pub(super) fresh: BTreeSet<File>,
    /// Files in the tree that may have lost their last name in it.
    nameless: BTreeSet<File>,
    /// Files that are in the log but may be outside of the tree.
    strayed: BTreeSet<File>,
    /// For files with several links, how many of their names are outside of the tree.
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

    /// Records an entry that is valid at any point: a start, or the patterns after one.
    pub(super) fn begin(&mut self, entry: Entry) {
        let _always = self.tree.enter(&entry);
        self.out.push(entry);
    }

    /// Records the identity of the tree, unless the log has it already.
    pub(super) fn identify(&mut self) -> Result<(), Error> {
        let source = self.source.identity()?;
        if self.tree.source() != Some(&source) {
            self.begin(Entry::Source(source));
        }
        Ok(())
    }

    /// Records the patterns, unless the log has them already.
    pub(super) fn select(&mut self, patterns: &Patterns) {
        if self.tree.patterns() != patterns {
            self.begin(Entry::Patterns(patterns.clone()));
        }
    }

    /// Adopts the doubts that the log contains and that no capture has settled.
    pub(super) fn take_doubts_of_log(&mut self) {
        for (file, part) in self.tree.in_doubt() {
            self.doubts.entry(file).or_default().add(&part);
        }
    }

    /// Records a change. If it cannot follow the recorded state, the files concerned are put in
    /// doubt.
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

    /// Notes that these parts are being read.
    pub(super) fn begin_reading(&mut self, doubts: &Doubts) {
        self.hold_back.begin_reading(doubts);
    }

    /// Settles these doubts, because what was read has been recorded. Hands on what adds up to a
    /// state that a file had. Returns false if some file changed while it was read.
    pub(super) fn end_reading(&mut self, doubts: Doubts) -> bool {
        self.settle(doubts);
        self.hold_back.end_reading(&self.doubts, &mut self.out)
    }

    /// Hands on the entries held back for files whose current state is known. No operation may be
    /// under way.
    pub(super) fn release(&mut self) {
        self.hold_back.release(&self.doubts, &mut self.out);
    }

    /// The files that an epoch would contain in an earlier state. `None` if the epoch has to wait:
    /// for names, or for files that have been reread fewer than `times` times. Most of those will
    /// stop changing soon.
    pub(super) fn stale(&self, times: u32) -> Option<BTreeSet<File>> {
        let stale = self.hold_back.stale(&self.doubts, times)?;
        let known = stale.iter().all(|file| self.tree.get(*file).is_some());
        known.then_some(stale)
    }

    /// Whether the names of some directory are in doubt.
    pub(super) fn waits_for_names(&self) -> bool {
        self.doubts.values().any(|doubt| doubt.names)
    }

    /// Whether the last epoch contains everything that is known.
    pub(super) fn is_told(&self) -> bool {
        !self.said && self.doubts.is_empty() && self.hold_back.is_empty()
    }

    /// Records bytes that were read back.
    pub(super) fn say_read_back(&mut self, file: File, offset: u64, bytes: Vec<u8>) {
        self.read_back += bytes.len() as u64;
        self.say(Change::Data {
            file,
            offset,
            bytes,
            origin: Origin::ReadBack,
        });
    }

    /// Records bytes that were read back, except blocks that the log is known to have already.
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

    /// Records a hole that was found, unless the log is known to have it.
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

    /// Reads again the part of the tree that must be wrong.
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

    /// Puts a range in doubt whose next write will be reported by itself.
    pub(super) fn raise_write_doubt(&mut self, file: File, offset: u64, length: u64) {
        let part = Part::Range { offset, length };
        self.disturb(file, &part);
        self.dirty_pages.add(file, offset, length);
        if self.doubts.entry(file).or_default().add_written(&part) {
            self.say(Change::Doubt { file, part });
        }
    }

    /// Notes that what was read of the file may not be a state that it had.
    fn disturb(&mut self, file: File, part: &Part) {
        if *part != Part::Names {
            self.hold_back.disturb(file, self.event);
        }
    }

    /// Puts whole pages in doubt, because a store to a mapped file may be anywhere in its page.
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

    /// Puts the whole file in doubt, and the directories that contain it.
    pub(super) fn raise_file_doubts(&mut self, file: File) {
        let (kind, names) = match self.tree.get(file) {
            Some(node) => (Some(node.kind.clone()), node.names.clone()),
            None => (None, BTreeSet::new()),
        };
        // A file that is not known yet may be a directory or a regular file.
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

    /// Puts the root in doubt. There is no epoch until it has been read.
    pub(super) fn raise_root_doubts(&mut self) {
        let root = self.source.name();
        self.raise_doubt(root, Part::Names);
        self.raise_doubt(root, Part::Attributes);
    }

    /// Puts the names of all directories in doubt, because a file has an unknown name.
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

    /// Puts the names of a file in doubt: the directories where it had one, and the directory where
    /// it may have one now.
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

    /// Puts files without a name in doubt: the event that their last user closed them may be lost.
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

    /// Puts in doubt what a new file may inherit from its directory.
    pub(super) fn raise_inherited_doubt(&mut self, file: File, directory: File) {
        let parent = self.tree.get(directory);
        let passed_on = |name: &[u8]| name == DEFAULT_ACCESS || name.starts_with(SECURITY_LABELS);
        let inherits =
            parent.is_some_and(|node| node.extended.iter().any(|(name, _)| passed_on(name)));
        // The directory's own attributes, still being read, may include such an attribute.
        if inherits || self.tree.is_in_doubt(directory, &Part::Attributes) {
            self.raise_doubt(file, Part::Attributes);
        }
    }

    /// Puts these parts of a file, and the names in its directory, in doubt. The path is relative
    /// to the root. A file that is not in the log yet has no parts, and is read completely.
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

    /// Records that what was in doubt has been read, except what has come to be in doubt since.
    pub(super) fn settle(&mut self, doubts: Doubts) {
        for (file, doubt) in doubts {
            let since = self.doubts.get_mut(&file);
            for part in doubt.settled(since) {
                self.say(Change::Settled { file, part });
            }
        }
    }

    /// Write-protects the pages in doubt, so that the next store to them is reported.
    pub(super) fn clean(&mut self, file: File, doubt: &DirtyParts) -> Result<(), Error> {
        if doubt.stores && self.is(file, &Kind::Regular) {
            // An overlay keeps its files open, and each of them is cleaned as a whole.
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

    /// As [`Self::clean`], for a range of a file, whether or not it is in doubt.
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

    /// The file at a path below the root, as the log has it.
    pub(super) fn at(&self, path: &Path) -> Option<File> {
        let tree = &self.tree;
        path.iter().try_fold(tree.root()?, |directory, name| {
            tree.child(directory, &Name::new(name.as_bytes()).ok()?)
        })
    }

    /// Whether all of these files are known to be in the tree.
    pub(super) fn has_all(&self, entries: &[(Name, File)]) -> bool {
        let known = |file: &File| self.tree.get(*file).is_some() && !self.strayed.contains(file);
        entries.iter().all(|(_, file)| known(file))
    }

    /// Whether more names of a file are unknown than before. Names outside of the tree always are.
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

    /// Whether a name in a directory of the tree belongs to the tree.
    pub(super) fn admits(&self, directory: File, name: &Name, is_directory: bool) -> bool {
        self.boundary
            .admits(&self.tree, directory, name, is_directory)
    }

    /// Whether this is a directory that no path leads to, if patterns make that matter.
    pub(super) fn is_nowhere(&self, file: File) -> bool {
        !self.boundary.is_open()
            && self.is(file, &Kind::Directory)
            && self.tree.path(file).is_none()
    }

    /// The names in a directory that belong to the tree. `None` if the directory is gone.
    pub(super) fn list(&mut self, directory: File) -> Result<Option<Vec<(Name, File)>>, Error> {
        let Some(filter) = self.boundary.of_directory(&self.tree, directory) else {
            // Without a path the patterns cannot be applied. The directory is read again once it
            // has a name.
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

    /// Removes the names that a directory no longer has.
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

    /// Whether the contents of a directory may become part of the tree with the directory's next
    /// name.
    fn is_moved_by_link(&mut self, file: File) -> bool {
        if self.boundary.is_open() || !self.is(file, &Kind::Directory) {
            return false;
        }
        let has_name = !self.names_of(file).is_empty();
        self.boundary.is_moved_by_link(file, has_name)
    }

    /// Reads all directories from this one down again.
    fn reconsider(&mut self, directory: File) {
        let mut below = vec![directory];
        while let Some(directory) = below.pop() {
            self.raise_doubt(directory, Part::Names);
            let children = self.tree.children(directory).map(|(_, child)| child);
            below.extend(children.filter(|child| self.is(*child, &Kind::Directory)));
        }
    }

    /// Breaks the cycle that arises when a directory is moved into its own former subdirectory. The
    /// subdirectory was moved out before, and the event of that is still to come.
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

    /// Notes a file without a name. It may be outside of the tree, where no event reports its
    /// changes.
    pub(super) fn note_stray(&mut self, file: File) {
        if self.source.has_outside() && self.names_of(file).is_empty() {
            self.strayed.insert(file);
            self.nameless.insert(file);
        }
    }

    /// Notes a file that has come back from outside. It is as unknown as a file that was never in
    /// the tree.
    pub(super) fn note_return(&mut self, file: File) {
        if self.strayed.remove(&file) && self.names_of(file).is_empty() {
            self.remove_below(file);
        }
    }

    /// Removes a directory that is now outside of the tree, with everything that has no other name.
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

    /// Removes a file that no longer exists, and that has no entries.
    pub(super) fn remove(&mut self, file: File) {
        self.source.forget(file);
        self.replace(file);
    }

    /// Removes a file whose inode number now belongs to another file.
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

    /// Removes files without a name in the tree, because no event reports when their last user
    /// closes them or what becomes of them outside. If such a file gets a name again, its directory
    /// is read. Nothing may be in doubt.
    pub(super) fn remove_nameless(&mut self) {
        while let Some(file) = self.nameless.pop_first() {
            if self.names_of(file).is_empty() && Some(file) != self.tree.root() {
                self.remove(file);
            }
        }
    }

    /// Handles a file that is gone, or has another identifier: ext4 can give a file a new
    /// generation without an event for its names.
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

    /// Whether the file still is what it was. A lower file of an overlay that has several names
    /// becomes another file when it is copied up, because each name then is a file of its own.
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

    /// Records attributes that were read. Extended attributes missing in `listings` will be
    /// removed. Returns the previous size if the file has grown. The bytes beyond it have to be
    /// read as well, because events describe appends relative to the known size.
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
