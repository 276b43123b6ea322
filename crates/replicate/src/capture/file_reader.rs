//! Reads files of the source and records their contents: completely for files that the log does not
//! have, and otherwise the parts in doubt.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::thread;
use std::time::Instant;

use nix::fcntl::OFlag;

use super::dirty::{DirtyParts, Doubts};
use super::listings::Listings;
use super::pace::Pace;
use super::pipeline::Pipeline;
use super::shadow::ShadowTree;
use super::source::Stretch;
use super::{Error, INTERVAL, Listener};
use crate::record::{Change, File, Kind, Name, Part};

/// How much of a file is in one record, in bytes.
const PIECE: u64 = 256 << 10;

/// The limit in bytes of pages that are read before and after a readback, because stores to them
/// may not be reported.
const MAX_SILENT: u64 = 1 << 20;

/// Reads with a limited rate.
#[derive(Debug)]
pub(super) struct FileReader {
    listings: Listings,
    pace: Pace,
    /// Events from this number on may concern what changes during the read.
    from: u64,
}

impl FileReader {
    /// `rate_limit` is in bytes per second.
    pub(super) fn new(rate_limit: Option<NonZeroU64>) -> Self {
        Self {
            listings: Listings::default(),
            pace: Pace::new(rate_limit),
            from: 0,
        }
    }

    /// Reads the parts in doubt. Events before this number have been processed. Further stores to
    /// `late` may not be reported. Directories that no path leads to come last, because a path may
    /// have been found by then.
    pub(super) fn read_all(
        &mut self,
        (doubts, late): (&Doubts, &Doubts),
        from: u64,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        self.from = from;
        let mut later = Vec::new();
        for (file, doubt) in doubts {
            match pipeline.shadow.is_nowhere(*file) {
                true => later.push((file, doubt)),
                false => self.read(*file, (doubt, late.get(file)), pipeline, listener)?,
            }
        }
        for (file, doubt) in later {
            self.read(*file, (doubt, None), pipeline, listener)?;
        }
        for (directory, names) in self.listings.take() {
            pipeline.shadow.unlink_missing(directory, &names);
        }
        Ok(())
    }

    /// Reads the parts of a file that are in doubt.
    fn read(
        &mut self,
        file: File,
        (doubt, late): (&DirtyParts, Option<&DirtyParts>),
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let shadow = &mut pipeline.shadow;
        let Some(node) = shadow.tree.get(file) else {
            return Ok(());
        };
        let kind = node.kind.clone();
        let vague = !shadow.source.format().exact();
        // After its time was queried, each later write gives the file another time, however soon. A
        // write that begins after the last wait is therefore reported.
        shadow.source.stat(file)?;
        shadow.source.wait(file, &kind)?;
        let Some(stat) = shadow.source.stat(file)? else {
            return shadow.vanish(file);
        };
        // No event reports when the last user closes it. If it gets a name, that directory is read.
        if vague && stat.st_nlink == 0 && Some(file) != shadow.tree.root() {
            shadow.remove(file);
            return Ok(());
        }
        if !shadow.recognise(file, &stat)? {
            return Ok(());
        }
        let mut doubt = doubt.clone();
        if doubt.attributes || !doubt.ranges.is_empty() {
            let before = shadow.update_attributes(file, &stat, &self.listings)?;
            if let Some(offset) = before.filter(|_| vague) {
                let length = u64::MAX;
                doubt.add_written(&Part::Range { offset, length });
            }
        }
        match kind {
            Kind::Directory if doubt.names => self.read_names(file, pipeline, listener)?,
            Kind::Regular => {
                let late = late.map_or(&[][..], |late| late.ranges.as_slice());
                let before = silent_pages(&pipeline.shadow, file, late)?;
                for range in &doubt.ranges {
                    self.read_range(file, *range, pipeline, listener)?;
                }
                let after = silent_pages(&pipeline.shadow, file, late)?;
                if !are_same(before.as_deref(), after.as_deref()) {
                    return Ok(());
                }
            }
            _ => {}
        }
        self.cut(file, pipeline)
    }

    /// Notes that the file had the recorded state, if nothing has changed it since the reading
    /// began.
    fn cut(&self, file: File, pipeline: &mut Pipeline) -> Result<(), Error> {
        if let Some(to) = pipeline.queue.quiet()? {
            pipeline.shadow.hold_back.cut(file, self.from, to);
        }
        Ok(())
    }

    fn read_names(
        &mut self,
        directory: File,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let mut unread = vec![directory];
        while let Some(directory) = unread.pop() {
            let Some(entries) = pipeline.shadow.list(directory)? else {
                pipeline.shadow.remove(directory);
                continue;
            };
            let names: BTreeSet<_> = entries.iter().map(|(name, _)| name.clone()).collect();
            // The names found in other directories come first. Otherwise a file that was moved from
            // one directory to another would have no name in between.
            if pipeline.shadow.boundary().is_open() {
                self.listings.insert(directory, names);
            } else {
                pipeline.shadow.unlink_missing(directory, &names);
            }
            pipeline.reveal(&entries)?;
            for (name, file) in entries {
                if let Some(below) = self.link(directory, name, file, pipeline, listener)? {
                    unread.push(below);
                }
            }
            pipeline.pass_on(listener)?;
        }
        Ok(())
    }

    /// Records a name that was found. Returns the file if it is a directory that has to be read.
    fn link(
        &mut self,
        directory: File,
        name: Name,
        file: File,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<Option<File>, Error> {
        if pipeline.shadow.tree.child(directory, &name) == Some(file) {
            return Ok(None);
        }
        let mut unread = None;
        pipeline.shadow.note_return(file);
        if pipeline.shadow.tree.get(file).is_none() {
            let Some(kind) = self.adopt(file, pipeline, listener)? else {
                return Ok(None);
            };
            unread = (kind == Kind::Directory).then_some(file);
        }
        pipeline.shadow.link(directory, name, file);
        Ok(unread)
    }

    /// Records a file that was not in the tree, without its names. `None` if it is gone.
    pub(super) fn adopt(
        &mut self,
        file: File,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<Option<Kind>, Error> {
        let shadow = &mut pipeline.shadow;
        let Some(stat) = shadow.source.stat(file)? else {
            return Ok(None);
        };
        let Some(kind) = shadow.source.kind(file, &stat)? else {
            return Ok(None);
        };
        // Events of a write in progress cannot be used, because they came before the file was
        // known.
        shadow.source.wait(file, &kind)?;
        let Some(stat) = shadow.source.stat(file)? else {
            return Ok(None);
        };
        shadow.hold_back.begin_adopting(file);
        shadow.say(Change::New {
            file,
            kind: kind.clone(),
        });
        shadow.update_attributes(file, &stat, &self.listings)?;
        if kind == Kind::Regular {
            shadow.clean_range(file, 0, u64::MAX)?;
            let before = pipeline.shadow.read_back;
            self.read_range(file, (0, u64::MAX), pipeline, listener)?;
            let shadow = &mut pipeline.shadow;
            shadow.dirty_pages.add_new(shadow.read_back - before);
        }
        self.cut(file, pipeline)?;
        Ok(Some(kind))
    }

    pub(super) fn read_range(
        &mut self,
        file: File,
        range: (u64, u64),
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let Some(opened) = pipeline.shadow.source.file(file, OFlag::O_RDONLY)? else {
            return Ok(());
        };
        for stretch in pipeline.shadow.source.stretches(file, &opened, range)? {
            let (offset, length) = match stretch {
                Stretch::Data { offset, length } => (offset, length),
                Stretch::Hole { offset, length } => {
                    pipeline.shadow.say_hole(file, offset, length);
                    continue;
                }
            };
            let mut done = 0;
            while done < length {
                let piece = usize::try_from(PIECE.min(length - done)).unwrap_or(usize::MAX);
                let at = offset + done;
                let bytes = pipeline.shadow.source.read(file, &opened, at, piece)?;
                if bytes.is_empty() {
                    break;
                }
                let length = bytes.len() as u64;
                done += length;
                pipeline.shadow.say_differences(file, at, bytes)?;
                pipeline.pass_on(listener)?;
                self.wait(length, pipeline, listener)?;
            }
        }
        Ok(())
    }

    /// Waits as long as the rate limit requires for these bytes, and keeps emptying the ring.
    fn wait(
        &mut self,
        bytes: u64,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let Some(until) = self.pace.spend(bytes, Instant::now()) else {
            return Ok(());
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(INTERVAL));
            pipeline.pass_on(listener)?;
        }
    }
}

/// The bytes of the ranges whose stores may not be reported. `None` if there are too many.
fn silent_pages(
    shadow: &ShadowTree,
    file: File,
    ranges: &[(u64, u64)],
) -> Result<Option<Vec<u8>>, Error> {
    let mut bytes = Vec::new();
    if ranges.is_empty() {
        return Ok(Some(bytes));
    }
    let length = |(start, end): &(u64, u64)| end - start;
    let all = ranges.iter().map(length).fold(0, u64::saturating_add);
    let Some(opened) = shadow.source.file(file, OFlag::O_RDONLY)? else {
        return Ok(None);
    };
    if all > MAX_SILENT {
        return Ok(None);
    }
    for range in ranges {
        let most = usize::try_from(length(range)).unwrap_or(usize::MAX);
        bytes.extend(shadow.source.read(file, &opened, range.0, most)?);
    }
    Ok(Some(bytes))
}

/// Whether pages are known to be the same before and after the reading. What was read in between is
/// then a state that they had.
fn are_same(before: Option<&[u8]>, after: Option<&[u8]>) -> bool {
    before.is_some() && before == after
}

#[cfg(test)]
mod tests {
    use super::are_same;

    #[test]
    fn pages_that_changed_or_are_too_many_are_of_no_one_state() {
        assert!(are_same(Some(b"x"), Some(b"x")));
        assert!(!are_same(Some(b"x"), Some(b"y")));
        assert!(!are_same(None, None));
    }
}
