//! Derives changes from events. Some can be recorded at once, others need a readback first.

use nix::sys::stat::makedev;

use super::Error;
use super::call_groups::CallGroups;
use super::calls;
use super::event::{Event, Flags, State, What};
use super::shadow::ShadowTree;
use super::source::kind_of;
use crate::record::{Attributes, Change, File, Kind, Name, Origin, Part};

const TYPE: u16 = 0o170_000;
const SYMLINK: u16 = 0o120_000;
const DIRECTORY: u16 = 0o040_000;

/// Applies events to the recorded tree.
#[derive(Debug)]
pub(super) struct Deriver<'a> {
    shadow: &'a mut ShadowTree,
    groups: &'a mut CallGroups,
}

impl<'a> Deriver<'a> {
    pub(super) fn new(shadow: &'a mut ShadowTree, groups: &'a mut CallGroups) -> Self {
        Self { shadow, groups }
    }

    /// Processes an event of the BPF programs.
    pub(super) fn take(&mut self, event: Event) -> Result<(), Error> {
        if !self.shadow.source.is_overlay() {
            return self.event(event);
        }
        for event in self.shadow.source.translate(event) {
            if let What::State(_) = event.what {
                self.note_copy(event.file, !event.flags.in_the_middle())?;
            }
            self.event(event)?;
        }
        Ok(())
    }

    /// Puts in doubt what the event would have changed, because later events have already been
    /// processed.
    pub(super) fn take_late(&mut self, event: Event) {
        for event in self.shadow.source.translate(event) {
            if event.what == What::Left {
                self.remove_outside(event.file);
                continue;
            }
            self.shadow.raise_file_doubts(event.file);
            if let What::New(state) | What::State(state) | What::Unlink(state) = &event.what {
                let directory = state.directory().unwrap_or(state.parent);
                self.shadow.raise_doubt(directory, Part::Names);
            }
        }
    }

    fn event(&mut self, event: Event) -> Result<(), Error> {
        let Event {
            file, flags, what, ..
        } = event;
        if let What::State(state) = &what
            && state.links > 0
        {
            self.shadow.note_return(file);
            if flags.outside() {
                self.move_out(file, state);
            }
        }
        let regular = self.is(file, &Kind::Regular);
        self.note_missing_kind(file, &what);
        match what {
            What::Data { offset, bytes } if regular => self.shadow.say(Change::Data {
                file,
                offset,
                bytes,
                origin: Origin::Exact,
            }),
            What::Range { offset, length } if regular => {
                self.shadow.raise_page_doubt(file, offset, length);
            }
            What::Written { offset, length } if regular => {
                self.shadow.raise_write_doubt(file, offset, length);
            }
            What::Appended if regular => {
                let size = self.shadow.tree.get(file).map_or(0, |node| node.size);
                self.shadow.raise_write_doubt(file, size, u64::MAX);
            }
            What::Size(size) if regular => self.shadow.say_size(file, size),
            What::New(state) => self.create(file, &state),
            What::State(state) if flags.vague() => self.vague_state(file, flags, &state),
            What::State(state) if !self.shadow.source.format().exact() => {
                self.written_state(file, flags, &state);
            }
            What::State(state) => self.state(file, flags, &state)?,
            What::Unlink(state) => {
                if let Some((directory, name)) = &state.name {
                    self.unlink(file, *directory, name);
                }
            }
            What::Gone => self.shadow.remove(file),
            What::Left => self.remove_outside(file),
            What::Mapped(true) if regular => self.shadow.mapped.insert(file),
            What::Mapped(_) => self.shadow.mapped.remove(file),
            // Only regular files have bytes.
            _ => {}
        }
        Ok(())
    }

    fn is(&self, file: File, kind: &Kind) -> bool {
        self.shadow.is(file, kind)
    }

    /// Reads again the times of the directories in which a copy was made. Values read while it was
    /// made belong to no state of the tree.
    fn note_copy(&mut self, file: File, over: bool) -> Result<(), Error> {
        let mut copied = vec![file];
        while let Some(file) = copied.pop() {
            if !self.shadow.source.is_copied(file, over)? {
                continue;
            }
            for (directory, _) in self.shadow.names_of(file) {
                self.shadow.raise_doubt(directory, Part::Attributes);
                copied.push(directory);
            }
        }
        Ok(())
    }

    fn create(&mut self, file: File, state: &State) {
        // The programs take a file without a name for one of the tree.
        let inside = self.is(state.parent, &Kind::Directory);
        let outside = self.shadow.source.has_outside() && !inside;
        if outside || self.shadow.tree.get(file).is_some() {
            return;
        }
        if !self.shadow.boundary().is_open() {
            // Whether the file belongs to the tree depends on its name, which is reported later.
            if inside {
                self.shadow.fresh.insert(file);
            }
            return;
        }
        match kind_of(state.mode.into(), 0) {
            Some(kind @ (Kind::Regular | Kind::Directory | Kind::Fifo | Kind::Socket)) => {
                self.shadow.say(Change::New { file, kind });
            }
            _ => {
                self.shadow.fresh.insert(file);
            }
        }
        self.shadow.raise_inherited_doubt(file, state.parent);
    }

    /// Does not record what was done to a file that was about to be created. The file is read
    /// instead, like every file that enters the tree.
    fn note_missing_kind(&mut self, file: File, what: &What) {
        if what.is_of_bytes() && !self.shadow.boundary().is_open() {
            self.shadow.fresh.remove(&file);
        }
    }

    /// Completes a new file once its kind is known.
    fn complete(&mut self, file: File, flags: Flags, state: &State) -> Result<(), Error> {
        if !self.shadow.fresh.contains(&file) || state.mode == 0 {
            return Ok(());
        }
        if !self.accepts(flags, state) {
            self.shadow.fresh.remove(&file);
            return Ok(());
        }
        let device = makedev(
            u64::from(state.device >> 20),
            u64::from(state.device & 0xf_ffff),
        );
        let kind = if state.mode & TYPE == SYMLINK {
            self.shadow.source.target(file)?.map(Kind::Symlink)
        } else {
            kind_of(state.mode.into(), device)
        };
        if let Some(kind) = kind {
            self.shadow.fresh.remove(&file);
            self.shadow.say(Change::New { file, kind });
            self.note_late_start(file, state);
        }
        Ok(())
    }

    /// Whether a new file belongs to the tree. A file that does not is treated like one outside.
    fn accepts(&mut self, flags: Flags, state: &State) -> bool {
        if self.shadow.boundary().is_open() {
            return true;
        }
        match &state.name {
            Some((directory, name)) => {
                self.is(*directory, &Kind::Directory)
                    && self.shadow.admits(*directory, name, is_directory(state))
            }
            None => {
                // For example the whiteout that a rename with `RENAME_WHITEOUT` leaves behind.
                if state.links > 0 && !flags.in_the_middle() {
                    self.shadow.raise_tree_doubts();
                }
                false
            }
        }
    }

    /// Puts in doubt what happened to a directory before it was recorded as new.
    fn note_late_start(&mut self, file: File, state: &State) {
        if self.shadow.boundary().is_open() {
            return;
        }
        if self.is(file, &Kind::Directory) {
            self.shadow.raise_doubt(file, Part::Names);
        }
        if let Some(directory) = state.directory() {
            self.shadow.raise_inherited_doubt(file, directory);
        }
    }

    fn state(&mut self, file: File, flags: Flags, state: &State) -> Result<(), Error> {
        self.complete(file, flags, state)?;
        let before = self.shadow.names_of(file);
        if self.shadow.tree.get(file).is_none() {
            self.note_arrival(flags, state);
        } else if state.mode == 0 {
            // The kernel has reused the memory of the inode, so whether it still has a name must be
            // read.
            self.shadow.raise_doubt(file, Part::Attributes);
        } else {
            self.attributes(file, state);
            if flags.in_the_middle() {
                self.shadow.raise_name_doubts(file, state.directory());
            } else {
                self.names(file, state);
            }
            if flags.extended() || flags.in_the_middle() || flags.overflown() {
                self.shadow.raise_doubt(file, Part::Attributes);
            }
        }
        let directory = self.is(file, &Kind::Directory);
        if directory && (flags.in_the_middle() || flags.overflown()) {
            self.shadow.raise_doubt(file, Part::Names);
        }
        self.groups.add(self.shadow, file, (flags, state), &before);
        Ok(())
    }

    /// Handles a file system that reports that a file has changed, but not how. Something of the
    /// file is in doubt, and for a directory maybe its names.
    fn vague_state(&mut self, file: File, flags: Flags, state: &State) {
        let Some(node) = self.shadow.tree.get(file) else {
            self.note_arrival(flags, state);
            return;
        };
        let directory = node.kind == Kind::Directory;
        self.shadow.raise_doubt(file, Part::Attributes);
        if directory {
            self.shadow.raise_doubt(file, Part::Names);
        }
    }

    /// Handles a file whose written bytes have all been reported, and of which only these
    /// attributes have changed. Changes of its names are reported with the directories.
    fn written_state(&mut self, file: File, flags: Flags, state: &State) {
        if self.shadow.tree.get(file).is_none() {
            self.note_arrival(flags, state);
        } else if state.mode == 0 || state.links == 0 || flags.overflown() {
            self.shadow.raise_doubt(file, Part::Attributes);
        } else {
            self.attributes(file, state);
        }
    }

    /// Handles an existing file that enters the tree: its directory has to be read.
    fn note_arrival(&mut self, flags: Flags, state: &State) {
        if let Some((directory, name)) = &state.name
            && self.is(*directory, &Kind::Directory)
            && self.may_belong((*directory, name), flags, state)
        {
            self.shadow.raise_doubt(*directory, Part::Names);
        }
    }

    /// Whether a file that is not in the tree may belong to it, by this name or by an unreported
    /// one.
    fn may_belong(&self, (directory, name): (File, &Name), flags: Flags, state: &State) -> bool {
        // While the operation runs, the file may have another name than at its end.
        let unsure = flags.in_the_middle() || flags.overflown();
        let others = state.links > 1 && !is_directory(state);
        unsure || others || self.shadow.admits(directory, name, is_directory(state))
    }

    fn attributes(&mut self, file: File, state: &State) {
        let Some(node) = self.shadow.tree.get(file) else {
            return;
        };
        let attributes = Attributes {
            mode: state.mode & 0o7777,
            uid: state.uid,
            gid: state.gid,
            modified_ns: state.modified_ns,
        };
        let differs = node.attributes != Some(attributes);
        // A write is reported before the size has grown by it. Only a truncation, which holds the
        // file's lock, reports a smaller size.
        let (regular, node_size) = (node.kind == Kind::Regular, node.size);
        let grown = regular && state.size > node_size;
        if grown {
            self.shadow.say_size(file, state.size);
        } else if node_size > state.size && regular {
            // Or bytes were written beyond the recorded end.
            self.shadow.raise_doubt(file, Part::Attributes);
        }
        if differs {
            self.shadow.say(Change::Attributes { file, attributes });
        }
    }

    fn names(&mut self, file: File, state: &State) {
        if Some(file) == self.shadow.tree.root() {
            // The name of the root is outside of the tree.
            return;
        }
        let held = self.shadow.names_of(file);
        if state.links == 0 {
            for (directory, name) in held {
                self.shadow.unlink(directory, &name);
            }
            return;
        }
        let Some((directory, name)) = &state.name else {
            if held.is_empty() {
                self.shadow.raise_tree_doubts();
            }
            return;
        };
        let is_directory = self.is(file, &Kind::Directory);
        if !self.is(*directory, &Kind::Directory)
            || !self.shadow.admits(*directory, name, is_directory)
        {
            // The file has moved out of the tree, or another of its names is there.
            self.shadow.raise_name_doubts(file, Some(*directory));
            if is_directory {
                self.shadow.remove_below(file);
            }
            return;
        }
        if self.shadow.tree.child(*directory, name) != Some(file) {
            if state.links > 1 && !is_directory && !calls::names(state.call) {
                // Another running call may be taking the name.
                self.shadow.raise_doubt(*directory, Part::Names);
                return;
            }
            self.shadow.link(*directory, name.clone(), file);
        }
        if !is_directory {
            self.unlink_others(file, state, (*directory, name));
        }
    }

    /// Removes the names of a file except the reported one, if the file has fewer links than names.
    fn unlink_others(&mut self, file: File, state: &State, (directory, name): (File, &Name)) {
        let held = self.shadow.names_of(file);
        if held.len() <= usize::try_from(state.links).unwrap_or(usize::MAX) {
            return;
        }
        if state.links > 1 || !calls::renames(state.call) {
            // Another running call may have taken any of the names.
            self.shadow.raise_name_doubts(file, Some(directory));
            return;
        }
        for (other, old) in held {
            if (other, &old) != (directory, name) {
                self.shadow.unlink(other, &old);
            }
        }
    }

    /// Removes this name of the file. On a case-insensitive file system the event has the name as
    /// the program spelled it, and the entry may differ in case.
    fn unlink(&mut self, file: File, directory: File, name: &Name) {
        let named = self.shadow.tree.child(directory, name);
        if named == Some(file) {
            self.shadow.unlink(directory, name);
        } else if self.is(directory, &Kind::Directory)
            && (named.is_some() || self.shadow.tree.get(file).is_some())
        {
            self.shadow.raise_doubt(directory, Part::Names);
        }
    }

    /// Removes the names of a file that is outside of the tree by now. It may come back before its
    /// directories are read, and then has to be read as well.
    fn move_out(&mut self, file: File, state: &State) {
        let shadow = &mut *self.shadow;
        if shadow.tree.get(file).is_none() || Some(file) == shadow.tree.root() {
            return;
        }
        shadow.raise_name_doubts(file, state.directory());
        if shadow.is(file, &Kind::Directory) {
            shadow.remove_below(file);
        } else {
            for (directory, name) in shadow.names_of(file) {
                shadow.unlink(directory, &name);
            }
            shadow.note_stray(file);
        }
    }

    /// Forgets a directory that was seen outside of the tree and was moved there unobserved.
    /// Changes of its files were not reported. If it comes back, it is read.
    fn remove_outside(&mut self, directory: File) {
        let shadow = &mut *self.shadow;
        if !shadow.is(directory, &Kind::Directory) || Some(directory) == shadow.tree.root() {
            return;
        }
        for (above, _) in shadow.names_of(directory) {
            shadow.raise_doubt(above, Part::Names);
        }
        shadow.remove_below(directory);
    }
}

fn is_directory(state: &State) -> bool {
    state.mode & TYPE == DIRECTORY
}
