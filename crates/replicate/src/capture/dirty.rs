//! What is not known and has to be read from the source: of each file, until it is settled.

use std::collections::BTreeMap;

use crate::record::{File, Part};

/// What of one file is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DirtyParts {
    /// Start and end, apart from each other and in order.
    pub(super) ranges: Vec<(u64, u64)>,
    /// Has been read, and is settled with those of `ranges` that are in it.
    pub(super) read: Vec<(u64, u64)>,
    /// Further stores to them may not be told.
    pub(super) stores: bool,
    pub(super) attributes: bool,
    pub(super) names: bool,
}

/// The files in doubt.
pub(super) type Doubts = BTreeMap<File, DirtyParts>;

impl DirtyParts {
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

    /// Adds all of another one.
    pub(super) fn join(&mut self, other: &Self) {
        for range in &other.ranges {
            add(&mut self.ranges, *range);
        }
        for range in &other.read {
            add(&mut self.read, *range);
        }
        self.stores |= other.stores;
        self.attributes |= other.attributes;
        self.names |= other.names;
    }

    /// Its ranges alone.
    pub(super) fn stored_ranges(&self) -> Self {
        Self {
            ranges: self.ranges.clone(),
            stores: self.stores,
            ..Self::default()
        }
    }

    fn add_range(&mut self, start: u64, end: u64) -> bool {
        add(&mut self.ranges, (start, end))
    }

    /// What is settled once all of it has been read, and `since` is in doubt: what that is about waits for it.
    pub(super) fn settled(&self, since: Option<&mut Self>) -> Vec<Part> {
        let mut ranges = self.ranges.clone();
        for range in &self.read {
            add(&mut ranges, *range);
        }
        let (mut attributes, mut names) = (self.attributes, self.names);
        if let Some(since) = since {
            attributes &= !since.attributes;
            names &= !since.names;
            ranges.retain(|&(start, end)| {
                let again = |&(from, to): &(u64, u64)| from < end && start < to;
                let waits = since.ranges.iter().any(again);
                if waits {
                    add(&mut since.read, (start, end));
                }
                !waits
            });
        }
        let parts = ranges.into_iter().map(|(start, end)| Part::Range {
            offset: start,
            length: if end == u64::MAX { end } else { end - start },
        });
        let attributes = attributes.then_some(Part::Attributes);
        let names = names.then_some(Part::Names);
        parts.chain(attributes).chain(names).collect()
    }
}

/// Adds a range to others; false where it is in one of them.
fn add(ranges: &mut Vec<(u64, u64)>, (start, end): (u64, u64)) -> bool {
    let within = |&(from, to): &(u64, u64)| from <= start && end <= to;
    if start >= end || ranges.iter().any(within) {
        return false;
    }
    let (mut start, mut end) = (start, end);
    ranges.retain(|&(from, to)| {
        let apart = to < start || end < from;
        if !apart {
            start = start.min(from);
            end = end.max(to);
        }
        apart
    });
    let at = ranges.partition_point(|&(from, _)| from < start);
    ranges.insert(at, (start, end));
    true
}

/// All bytes of a file.
pub(super) fn everything() -> Part {
    Part::Range {
        offset: 0,
        length: u64::MAX,
    }
}
