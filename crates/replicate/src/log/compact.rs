//! Folds the segments up to an epoch into one base segment, which describes the tree as of that
//! epoch and replaces them in one step. Later records keep their numbers. The records of the base
//! get the numbers just before them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::reader::{LocatedRecord, Reader};
use super::segment::{self, Header, Where};
use super::{Error, MAX_RECORD, disk_usage, frame};
use crate::contents::{Bytes, Contents, Extents, Source};
use crate::folder::Folder;
use crate::record::{self, Change, Entry, Kind, Origin, Record};
use crate::tree::{Node, Tree};

/// How many bytes are synced to the disk at a time. A larger batch would make a concurrent sync of
/// the log wait.
const BATCH_BYTES: usize = 16 << 20;
/// The size of a data record without its bytes, rounded up.
const BESIDES: u64 = 4096;

/// The file name of the segment while it is written.
const NAME: &str = "compact.tmp";

/// The progress or the result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// The first epoch that the log has now.
    pub epoch: u64,
    /// The size in bytes of the folded segments, and of the base that replaced them.
    pub before: u64,
    pub after: u64,
}

/// The progress passed to the callback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacting {
    /// The number of records read, and of records written.
    pub read: u64,
    pub written: u64,
}

/// Removes the epochs before this one. The writer, and readers that are beyond the epoch, may run
/// meanwhile.
///
/// # Errors
/// [`Error::NoEpoch`], [`Error::Written`], or [`Error::Compact`] if the compaction would save no
/// record. [`Error::Busy`] while another compaction of the log runs.
pub fn compact(folder: &Path, epoch: u64) -> Result<CompactionReport, Error> {
    compact_while(folder, epoch, &mut |_| true)
}

/// As [`compact`], for as long as `goes_on` returns true. The callback receives the progress.
///
/// # Errors
/// Also [`Error::Interrupted`], which leaves the log as it was.
pub fn compact_while(
    folder: &Path,
    epoch: u64,
    goes_on: &mut dyn FnMut(Compacting) -> bool,
) -> Result<CompactionReport, Error> {
    let opened = segment::open_folder(folder)?;
    let _lock = segment::lock(&opened, "compact.lock")?;
    // Remove the file of a compaction that was killed.
    segment::remove(&opened, NAME)?;
    let mut turn = Turn {
        folder,
        goes_on,
        now: Compacting::default(),
    };
    let written =
        Fold::up_to(&opened, epoch, &mut turn).and_then(|fold| fold.write(&opened, &mut turn));
    if written.is_err() {
        // Free the space, because the writer of the log needs it.
        segment::remove(&opened, NAME)?;
    }
    let last = written?;
    let base = segment::base(last);
    // The file is a hint only, so a failure to write it does not fail the compaction.
    let _ = disk_usage::say(&opened, last, epoch);
    let renamed = opened.rename(NAME, &base);
    renamed.map_err(segment::in_folder(&opened, NAME))?;
    segment::sync_folder(&opened)?;
    let after = disk_usage::length_of(&opened, &base)?;
    let mut before = 0;
    for segment in segment::list(&opened)?.replaced {
        before += disk_usage::length_of(&opened, &segment.name)?;
        segment::remove(&opened, &segment.name)?;
    }
    Ok(CompactionReport {
        epoch,
        before,
        after,
    })
}

/// Reports progress and asks whether to continue.
struct Turn<'a> {
    folder: &'a Path,
    goes_on: &'a mut dyn FnMut(Compacting) -> bool,
    now: Compacting,
}

impl Turn<'_> {
    fn read(&mut self) -> Result<(), Error> {
        self.now.read += 1;
        self.take()
    }

    fn written(&mut self) -> Result<(), Error> {
        self.now.written += 1;
        self.take()
    }

    fn take(&mut self) -> Result<(), Error> {
        match (self.goes_on)(self.now) {
            true => Ok(()),
            false => Err(Error::Interrupted(self.folder.to_owned())),
        }
    }
}

struct Fold {
    tree: Tree,
    contents: Contents,
    /// The record of the epoch.
    epoch: LocatedRecord,
    /// The position after that record.
    reader: Reader,
}

impl Fold {
    fn up_to(opened: &Folder, epoch: u64, turn: &mut Turn<'_>) -> Result<Self, Error> {
        let folder = opened.path();
        let mut reader = Reader::open(folder)?;
        let (mut tree, mut contents) = (Tree::default(), Contents::default());
        let found = loop {
            let none = || Error::NoEpoch {
                folder: folder.to_owned(),
                epoch,
            };
            let located = reader.read()?.ok_or_else(none)?;
            turn.read()?;
            tree.fold(&located.record).map_err(|invalid| {
                let folder = folder.to_owned();
                Error::Invalid { folder, invalid }
            })?;
            contents.follow(&located);
            match located.record.entry {
                Entry::Epoch { number } if number == epoch => break located,
                Entry::Epoch { number } if number > epoch => return Err(none()),
                _ => {}
            }
        };
        let last = segment::list(opened)?.live.pop();
        if last.is_some_and(|last| {
            matches!(last.place, Where::Written { .. })
                && folder.join(last.name) == found.place.segment()
        }) {
            return Err(Error::Written { epoch });
        }
        Ok(Self {
            tree,
            contents,
            epoch: found,
            reader,
        })
    }

    /// Writes the base and returns the number of its last record.
    fn write(mut self, folder: &Folder, turn: &mut Turn<'_>) -> Result<u64, Error> {
        let path = folder.path().join(NAME);
        let error = Error::io(&path);
        let epoch = &self.epoch.record;
        let count = self.say(&mut |_| turn.take())?;
        let Some(first) = (epoch.number + 1).checked_sub(count).filter(|at| *at > 0) else {
            return Err(Error::Compact {
                epoch: self.tree.epoch(),
            });
        };
        let none = || Error::Missing {
            folder: folder.path().to_owned(),
            number: 1,
        };
        let mut header = Header {
            id: self.reader.id()?.ok_or_else(none)?,
            first,
            folded: epoch.number,
            last: epoch.number,
        };
        let mut file = Output {
            file: BufWriter::new(segment::create(folder, NAME, &header)?),
            path: &path,
            unsynced: 0,
        };
        let (mut number, at_ns) = (first, epoch.at_ns);
        self.say(&mut |entry| {
            let record = Record {
                number,
                at_ns,
                entry,
            };
            number += 1;
            turn.written()?;
            file.put(&record)
        })?;
        while let Some(next) = self.reader.read()? {
            if next.place.segment() != self.epoch.place.segment() {
                break;
            }
            turn.written()?;
            file.put(&next.record)?;
            header.last = next.record.number;
        }
        file.file.flush().map_err(&error)?;
        let file = file.file.get_ref();
        file.write_all_at(&header.encode(), 0).map_err(&error)?;
        file.sync_all().map_err(&error)?;
        Ok(header.last)
    }

    /// Writes entries that describe the tree, and returns their number.
    fn say(&self, with: &mut dyn FnMut(Entry) -> Result<(), Error>) -> Result<u64, Error> {
        let Some(root) = self.tree.root() else {
            return Ok(0);
        };
        let mut count = 0;
        let mut say = |entry| {
            count += 1;
            with(entry)
        };
        if let Some(term) = self.tree.term() {
            say(Entry::Term(term.clone()))?;
        }
        say(Entry::Start { root })?;
        if let Some(source) = self.tree.source() {
            say(Entry::Source(source.clone()))?;
        }
        if !self.tree.patterns().is_empty() {
            say(Entry::Patterns(self.tree.patterns().clone()))?;
        }
        for (file, node) in self.tree.files() {
            if file != root {
                let kind = node.kind.clone();
                say(Entry::Change(Change::New { file, kind }))?;
            }
            if node.kind == Kind::Regular
                && let Some(extents) = self.contents.get(file)
            {
                say_content(file, node, extents, &mut say)?;
            }
            for change in node.changes(file) {
                say(Entry::Change(change))?;
            }
        }
        for (file, node) in self.tree.files() {
            for (directory, name) in &node.names {
                let (directory, name) = (*directory, name.clone());
                say(Entry::Change(Change::Link {
                    directory,
                    name,
                    file,
                }))?;
            }
        }
        for file in self.tree.stale() {
            say(Entry::Stale { file })?;
        }
        let number = self.tree.epoch();
        say(Entry::Epoch { number })?;
        Ok(count)
    }
}

fn say_content(
    file: record::File,
    node: &Node,
    extents: &Extents,
    say: &mut dyn FnMut(Entry) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut source = Source::default();
    let mut run = Run {
        file,
        start: 0,
        bytes: Vec::new(),
    };
    let mut reached = 0;
    for (start, end, bytes) in extents.iter() {
        if let Bytes::Hole = bytes {
            continue;
        }
        // Data beyond the end of the file is written as well, because it becomes visible when the
        // file grows again.
        let mut at = start;
        while at < end {
            if run.end() != at || run.is_full() {
                run.say(at, say)?;
            }
            let to = end.min(run.limit());
            match bytes {
                Bytes::Written { place, at: from } => {
                    run.bytes.extend(source.read(place, *from, at, to)?);
                }
                _ => run.bytes.resize(run.bytes.len() + length(to - at), 0),
            }
            at = to;
        }
        reached = reached.max(end);
    }
    run.say(0, say)?;
    if reached == node.size {
        return Ok(());
    }
    let size = node.size;
    say(Entry::Change(Change::Size { file, size }))
}

/// Adjacent bytes of a file that fit into one record.
struct Run {
    file: record::File,
    start: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn limit(&self) -> u64 {
        self.start + MAX_RECORD as u64 - BESIDES
    }

    fn is_full(&self) -> bool {
        self.end() >= self.limit()
    }

    /// Writes the collected bytes and starts a new run.
    fn say(
        &mut self,
        next: u64,
        say: &mut dyn FnMut(Entry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let bytes = std::mem::take(&mut self.bytes);
        let offset = std::mem::replace(&mut self.start, next);
        if bytes.is_empty() {
            return Ok(());
        }
        say(Entry::Change(Change::Data {
            file: self.file,
            offset,
            bytes,
            origin: Origin::ReadBack,
        }))
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The file that becomes the base.
struct Output<'a> {
    file: BufWriter<File>,
    path: &'a Path,
    unsynced: usize,
}

impl Output<'_> {
    fn put(&mut self, record: &Record) -> Result<(), Error> {
        let error = Error::io(self.path);
        let mut bytes = Vec::new();
        frame::put(record, &mut bytes).map_err(Error::TooLarge)?;
        self.file.write_all(&bytes).map_err(&error)?;
        self.unsynced += bytes.len();
        if self.unsynced >= BATCH_BYTES {
            self.unsynced = 0;
            self.file.flush().map_err(&error)?;
            self.file.get_ref().sync_data().map_err(&error)?;
        }
        Ok(())
    }
}
