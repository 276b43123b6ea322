//! The parts of files that are in doubt and have to be read from the source.

use std::collections::BTreeMap;

use crate::record::{File, Part};

/// The parts of one file in doubt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DirtyParts {
    /// Start and end, sorted and disjoint.
    pub(super) ranges: Vec<(u64, u64)>,
    /// Ranges that were read. They are settled together with the `ranges` in them.
    pub(super) read: Vec<(u64, u64)>,
    /// Further stores to these ranges may not be reported.
    pub(super) stores: bool,
    pub(super) attributes: bool,
    pub(super) names: bool,
}

/// The files in doubt.
pub(super) type Doubts = BTreeMap<File, DirtyParts>;

impl DirtyParts {
    /// Adds a part. Returns false if it is there already.
    pub(super) fn add(&mut self, part: &Part) -> bool {
        self.stores |= matches!(part, Part::Range { .. });
        self.add_written(part)
    }

    /// As `add`, for a range whose further changes will be reported.
    pub(super) fn add_written(&mut self, part: &Part) -> bool {
        match *part {
            Part::Range { offset, length } => self.add_range(offset, offset.saturating_add(length)),
            Part::Attributes => !std::mem::replace(&mut self.attributes, true),
            Part::Names => !std::mem::replace(&mut self.names, true),
        }
    }

    /// Adds all parts of another file's set.
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

    /// Only the ranges.
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

    /// The parts that are settled once everything has been read. Parts that overlap `since`, which
    /// is in doubt again, wait for it.
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

/// Adds a range. Returns false if one of the ranges contains it.
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
