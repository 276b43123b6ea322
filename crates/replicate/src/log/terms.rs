//! Lists the promotions of a log. Each begins a segment, so they are found without reading the
//! whole log.

use std::path::Path;
use std::sync::Arc;

use super::Error;
use super::open::Open;
use super::segment::{self, Segment};
use crate::folder::Folder;
use crate::record::{Entry, Term};

/// The position of a promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermStart {
    /// The number of its record, which follows that of its epoch. `None` if the record was folded.
    pub record: Option<u64>,
    /// When it was written, in nanoseconds since 1970.
    pub at_ns: u64,
    pub term: Term,
}

/// All promotions of a log that are not folded, and the last one that is, in order.
///
/// # Errors
/// Fails if the first record of a segment is damaged.
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
