//! Compares what is read with the log that is continued, so that only differences are recorded.

use std::path::{Path, PathBuf};

use super::Error;
use crate::contents::{Contents, Source};
use crate::log::{self, Reader};
use crate::record::{self, Change, File, Term};
use crate::tree::Tree;

/// How much is compared at once, in bytes.
const BLOCK: u64 = 64 << 10;

/// The state of a log that was read to its end.
#[derive(Debug)]
pub struct LogState {
    folder: PathBuf,
    pub(super) tree: Tree,
    pub(super) contents: Contents,
}

/// The work of continuing a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescan {
    /// Files of all kinds that were compared with the log.
    pub files: u64,
    /// Files that were not in the log, or were of another kind there.
    pub new: u64,
    /// Files that were in the log and no longer exist.
    pub gone: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that differed from the log, including those of new files.
    pub differed: u64,
    /// Only files in a journal were compared.
    pub journal: bool,
}

/// The comparison with the log that is continued, if there is one.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// `Some` until the first epoch.
    log: Option<LogContents>,
    counts: Option<Rescan>,
}

/// The contents of the log, while files are compared with it.
#[derive(Debug)]
struct LogContents {
    contents: Contents,
    source: Source,
    /// The number of files recorded as new, and as gone.
    new: u64,
    gone: u64,
}

impl LogState {
    /// Folds all records. No other writer may use the log any more.
    ///
    /// # Errors
    /// The error of a damaged or unreadable log.
    pub fn read(folder: &Path) -> Result<Self, log::Error> {
        let mut reader = Reader::open(folder)?;
        let (mut tree, mut contents) = (Tree::default(), Contents::default());
        while let Some(located) = reader.read()? {
            let folded = tree.fold(&located.record);
            folded.map_err(|invalid| log::Error::Invalid {
                folder: folder.to_owned(),
                invalid,
            })?;
            contents.follow(&located);
        }
        Ok(Self {
            folder: folder.to_owned(),
            tree,
            contents,
        })
    }

    /// The number of its last record.
    pub(crate) fn number(&self) -> u64 {
        self.tree.number()
    }

    /// # Errors
    /// [`Error::OtherTree`] unless the log is of the tree with this root, or has no tree yet.
    pub(super) fn check(
        &self,
        root: File,
        source: &record::Source,
        path: &Path,
    ) -> Result<(), Error> {
        let Some(of) = self.tree.root() else {
            return Ok(());
        };
        if let Some(term) = self.tree.term() {
            return check_term(term, (root, source), (&self.folder, path));
        }
        let mut differs = Vec::new();
        if let Some(known) = self
            .tree
            .source()
            .filter(|known| !known.is_on_volume_of(source))
        {
            let was = known.path.escape_ascii();
            differs.push(format!(
                "the log's was {was} on {known}, this one is on {source}"
            ));
        }
        if of != root {
            differs.push(format!("the log's root was {of}, this one is {root}"));
        }
        match differs.is_empty() {
            true => Ok(()),
            false => Err(Error::OtherTree {
                log: self.folder.clone(),
                tree: path.to_owned(),
                differs: differs.join(", "),
            }),
        }
    }
}

/// # Errors
/// [`Error::Promoted`] for a tree that is not the promoted one.
pub(super) fn check_term(
    term: &Term,
    (root, source): (File, &record::Source),
    (log, tree): (&Path, &Path),
) -> Result<(), Error> {
    if term.root == root && term.source.is_on_volume_of(source) {
        return Ok(());
    }
    Err(Error::Promoted {
        log: log.to_owned(),
        tree: tree.to_owned(),
        term: term.number,
        promoted: term.source.path.escape_ascii().to_string(),
    })
}

impl Comparison {
    /// A comparison with a log. `journal` tells that a journal has the files that may differ.
    pub(super) fn new(contents: Contents, journal: bool) -> Self {
        Self {
            log: Some(LogContents {
                contents,
                source: Source::default(),
                new: 0,
                gone: 0,
            }),
            counts: Some(Rescan {
                journal,
                ..Rescan::default()
            }),
        }
    }

    /// `None` if no log was continued.
    pub(super) fn rescan(&self) -> Option<Rescan> {
        self.counts
    }

    pub(super) fn count_files(&mut self, files: u64) {
        if let Some(counts) = &mut self.counts {
            counts.files += files;
        }
    }

    /// Applies a change that was recorded in the log.
    pub(super) fn follow(&mut self, change: &Change) {
        let Some(log) = &mut self.log else {
            return;
        };
        match change {
            Change::New { .. } => log.new += 1,
            Change::Gone { .. } => log.gone += 1,
            _ => {}
        }
        log.contents.forget(change);
    }

    /// Whether the log is known to have this hole.
    pub(super) fn has_hole(&self, file: File, offset: u64, length: u64) -> bool {
        let log = self.log.as_ref();
        log.is_some_and(|log| log.contents.says_hole(file, offset, offset + length))
    }

    /// The ranges that the log is not known to have with these bytes, by start and end.
    pub(super) fn differences(
        &mut self,
        file: File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Vec<(u64, u64)>, log::Error> {
        let length = bytes.len() as u64;
        let Some(LogContents {
            contents, source, ..
        }) = &mut self.log
        else {
            return Ok(vec![(offset, offset + length)]);
        };
        let mut differ: Vec<(u64, u64)> = Vec::new();
        let mut at = offset;
        while at < offset + length {
            let end = (at - at % BLOCK + BLOCK).min(offset + length);
            let block = part(bytes, at - offset, end - offset);
            if !contents.says(source, file, at, block)? {
                match differ.last_mut() {
                    Some((_, to)) if *to == at => *to = end,
                    _ => differ.push((at, end)),
                }
            }
            at = end;
        }
        if let Some(counts) = &mut self.counts {
            counts.bytes += length;
            counts.differed += differ.iter().map(|(from, to)| to - from).sum::<u64>();
        }
        Ok(differ)
    }

    /// Ends the comparison: the log has the whole tree.
    pub(super) fn finish(&mut self) {
        if let Some(LogContents { new, gone, .. }) = self.log.take()
            && let Some(counts) = &mut self.counts
        {
            (counts.new, counts.gone) = (new, gone);
        }
    }
}

/// A range of bytes.
pub(super) fn part(bytes: &[u8], from: u64, to: u64) -> &[u8] {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    bytes.get(at(from)..at(to)).unwrap_or_default()
}
