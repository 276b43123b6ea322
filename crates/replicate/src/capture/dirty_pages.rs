//! Counts the pages that have to be read back, as a reference for the bytes that are read.

use std::collections::BTreeMap;

use crate::record::File;

/// The page size in bytes on every kernel that a capture supports.
const PAGE: u64 = 4096;

/// The distinct pages that were in doubt, summed up over epochs.
#[derive(Debug, Default)]
pub(super) struct DirtyPages {
    /// The pages since the last epoch: the first page of each range, and the page after its last.
    files: BTreeMap<File, BTreeMap<u64, u64>>,
    /// The total of all epochs, in bytes.
    bytes: u64,
}

impl DirtyPages {
    /// Counts the pages of a range that were not counted since the last epoch. If the end is
    /// unknown, because the position of the write was not reported, only the first page counts.
    pub(super) fn add(&mut self, file: File, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let first = offset / PAGE;
        let end = match offset.checked_add(length) {
            Some(end) if length != u64::MAX => end.div_ceil(PAGE),
            _ => first + 1,
        };
        let ranges = self.files.entry(file).or_default();
        let (mut from, mut to) = (first, end);
        let mut known = 0;
        // Adjacent ranges are merged, so that no two ranges touch.
        while let Some((&start, &stop)) = ranges.range(..=to).next_back() {
            if stop < from {
                break;
            }
            known += stop.min(end).saturating_sub(start.max(first));
            (from, to) = (from.min(start), to.max(stop));
            ranges.remove(&start);
        }
        ranges.insert(from, to);
        self.bytes += (end - first - known) * PAGE;
    }

    /// Counts bytes of a file that was not in the tree.
    pub(super) fn add_new(&mut self, bytes: u64) {
        self.bytes += bytes.next_multiple_of(PAGE);
    }

    /// Starts the pages of another epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.files.clear();
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> File {
        File {
            inode,
            generation: 1,
        }
    }

    #[test]
    fn a_page_counts_once_in_each_epoch() {
        let mut pages = DirtyPages::default();
        let mut counted = |number, offset, length| {
            let before = pages.bytes();
            pages.add(file(number), offset, length);
            (pages.bytes() - before) / PAGE
        };
        assert_eq!(counted(1, 0, 0), 0);
        assert_eq!(counted(1, 4000, 200), 2);
        assert_eq!(counted(1, 4095, 1), 0);
        assert_eq!(counted(1, 10 * PAGE, 1), 1);
        assert_eq!(counted(1, PAGE, 12 * PAGE), 10);
        assert_eq!(counted(1, 0, 13 * PAGE), 0);
        // The end is unknown.
        assert_eq!(counted(1, 20 * PAGE, u64::MAX), 1);
        assert_eq!(counted(1, u64::MAX - 1, 5), 1);
        assert_eq!(counted(2, 0, 1), 1);
        pages.begin_epoch();
        let before = pages.bytes();
        pages.add(file(1), 0, 1);
        pages.add_new(PAGE + 1);
        assert_eq!(pages.bytes() - before, 3 * PAGE);
    }
}
