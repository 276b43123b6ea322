//! An entry of a table: one byte or two, each written at once.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering, fence};

use sys::huge::Shared;

use crate::memory::Numbers;

/// The number of a next hop, or the largest value: "look further".
pub(super) trait Entry: Copy + Debug + Eq + Send + Sync + 'static {
    type Cell: Shared + Debug + Send + Sync;

    const ESCAPE: Self;

    /// The entry for a next hop below `ESCAPE`; nothing beyond.
    fn of(hop: u16) -> Option<Self>;
    /// Its number.
    fn code(self) -> u16;
    fn load(cell: &Self::Cell) -> Self;
    fn store(cell: &Self::Cell, entry: Self);
    /// Entry `at` of little-endian bytes; none past their end.
    fn read(bytes: &[u8], at: usize) -> Option<Self>;
    fn numbers(cells: &[Self::Cell]) -> Numbers<'_>;
    /// The same entry eight or four times.
    fn repeated(self) -> u64;
    /// The first cells, then those that eight aligned bytes hold at a time, then the last ones.
    fn split(cells: &[Self::Cell]) -> (&[Self::Cell], &[AtomicU64], &[Self::Cell]);

    /// Writes `entry` to all of `cells`: a reader that finds one also sees what was written before.
    fn fill(cells: &[Self::Cell], entry: Self) {
        fence(Ordering::Release);
        let (head, middle, tail) = Self::split(cells);
        head.iter().for_each(|cell| Self::store(cell, entry));
        let word = entry.repeated();
        middle
            .iter()
            .for_each(|cell| cell.store(word, Ordering::Relaxed));
        tail.iter().for_each(|cell| Self::store(cell, entry));
    }
}

macro_rules! entry {
    ($int:ty, $cell:ty) => {
        impl Entry for $int {
            type Cell = $cell;

            const ESCAPE: Self = Self::MAX;

            fn of(hop: u16) -> Option<Self> {
                Self::try_from(hop)
                    .ok()
                    .filter(|&entry| entry != Self::ESCAPE)
            }

            fn code(self) -> u16 {
                u16::from(self)
            }

            #[inline(always)]
            fn load(cell: &Self::Cell) -> Self {
                cell.load(Ordering::Relaxed)
            }

            fn store(cell: &Self::Cell, entry: Self) {
                cell.store(entry, Ordering::Relaxed);
            }

            fn read(bytes: &[u8], at: usize) -> Option<Self> {
                let (entries, _) = bytes.as_chunks();
                entries.get(at).map(|&entry| Self::from_le_bytes(entry))
            }

            fn numbers(cells: &[Self::Cell]) -> Numbers<'_> {
                cells.into()
            }

            fn repeated(self) -> u64 {
                u64::from(self) * (u64::MAX / u64::from(Self::MAX))
            }

            fn split(cells: &[Self::Cell]) -> (&[Self::Cell], &[AtomicU64], &[Self::Cell]) {
                // SAFETY: eight bytes of such cells are an `AtomicU64` and may be written at once:
                // x86-64 and aarch64 write each byte of an aligned word once, so a reader of one
                // cell sees the old entry or the new one.
                unsafe { cells.align_to() }
            }
        }
    };
}

entry!(u8, AtomicU8);
entry!(u16, AtomicU16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_what_is_asked_and_nothing_else() {
        for from in 0..20 {
            for to in from..40 {
                let cells: Vec<_> = (0..40).map(|_| AtomicU16::new(1)).collect();
                u16::fill(&cells[from..to], 0x203);
                for (at, cell) in cells.iter().enumerate() {
                    let wanted = if (from..to).contains(&at) { 0x203 } else { 1 };
                    assert_eq!(u16::load(cell), wanted);
                }
            }
        }
        assert_eq!(7u8.repeated(), 0x0707_0707_0707_0707);
    }

    #[test]
    fn keeps_the_escape_apart() {
        assert_eq!(
            (u8::of(254), u8::of(255), u8::of(256)),
            (Some(254), None, None)
        );
        assert_eq!((u16::of(0x7fff), u16::of(0xffff)), (Some(0x7fff), None));
    }
}
