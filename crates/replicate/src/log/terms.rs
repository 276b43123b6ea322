//! The promotions that a log has. Each begins a segment: they are found without reading all of the log.

use std::path::Path;
use std::sync::Arc;

use super::Error;
use super::open::Open;
use super::segment::{self, Segment};
use crate::folder::Folder;
use crate::record::{Entry, Term};

/// Where a promotion is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermStart {
    /// The number of its record, which follows that of its epoch. None where that was folded.
    pub record: Option<u64>,
    /// When it was written, in nanoseconds since 1970.
    pub at_ns: u64,
    pub term: Term,
}

/// All of a log that are not folded, and the last one that is, in their order.
///
/// # Errors
/// What is wrong with the first record of a segment.
pub fn terms(folder: &Path) -> Result<Vec<TermStart>, Error> {
    let folder = Arc::new(segment::open_folder(folder)?);
    let live = segment::list(&folder)?.live;
    of(&folder, &live)
}

pub(super) fn of(folder: &Arc<Folder>, live: &[Segment]) -> Result<Vec<TermStart>, Error> {
    let mut all = Vec::new();
    for segment in live {
        let Some(mut open) = Open::new(folder, segment)? else {
            continue;
        };
        let folded = open.header.folded;
        let Some(located) = open.next()? else {
            continue;
        };
        let record = located.record;
        if let Entry::Term(term) = record.entry {
            all.push(TermStart {
                record: (record.number > folded).then_some(record.number),
                at_ns: record.at_ns,
                term,
            });
        }
    }
    Ok(all)
}
