//! What is not known and has to be read from the source: of each file, until it is settled.

use std::collections::BTreeMap;

use crate::record::{File, Part};

/// What of one file is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubt {
    /// Start and end, apart from each other and in order.
    pub(super) ranges: Vec<(u64, u64)>,
    /// Further stores to them may not be told.
    pub(super) stores: bool,
    pub(super) attributes: bool,
    pub(super) names: bool,
}

/// The files in doubt.
pub(super) type Doubts = BTreeMap<File, Doubt>;

impl Doubt {
    /// Adds to what is to be read; false where it is already.
    pub(super) fn add(&mut self, part: &Part) -> bool {
        self.stores |= matches!(part, Part::Range { .. });
        self.add_written(part)
    }

    /// As `add`, of a range of which further changes will be told.
    pub(super) fn add_written(&mut self, part: &Part) -> bool {
        match *part {
            Part::Range { offset, length } => self.add_range(offset, offset.saturating_add(length)),
            Part::Attributes => !std::mem::replace(&mut self.attributes, true),
            Part::Names => !std::mem::replace(&mut self.names, true),
        }
    }

    fn add_range(&mut self, start: u64, end: u64) -> bool {
        if start >= end
            || self
                .ranges
                .iter()
                .any(|&(from, to)| from <= start && end <= to)
        {
            return false;
        }
        let (mut start, mut end) = (start, end);
        self.ranges.retain(|&(from, to)| {
            let apart = to < start || end < from;
            if !apart {
                start = start.min(from);
                end = end.max(to);
            }
            apart
        });
        let at = self.ranges.partition_point(|&(from, _)| from < start);
        self.ranges.insert(at, (start, end));
        true
    }

    /// Adds all of another's.
    pub(super) fn merge(&mut self, other: &Self) {
        self.stores |= other.stores;
        for part in other.parts() {
            self.add_written(&part);
        }
    }

    pub(super) fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<_> = self
            .ranges
            .iter()
            .map(|&(start, end)| Part::Range {
                offset: start,
                length: if end == u64::MAX { end } else { end - start },
            })
            .collect();
        parts.extend(self.attributes.then_some(Part::Attributes));
        parts.extend(self.names.then_some(Part::Names));
        parts
    }
}

/// All bytes of a file.
pub(super) fn everything() -> Part {
    Part::Range {
        offset: 0,
        length: u64::MAX,
    }
}
