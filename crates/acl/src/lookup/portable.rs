//! Plain Rust, for every machine.

use super::{Operations, all_batches};
use crate::address::Address;
use crate::line::Line;
use crate::rule::Key;
use crate::table::{BOUND_WORDS, Table};

pub(super) struct Portable;

impl<A: Address> Operations<A> for Portable {
    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        extract(word, mask)
    }

    #[inline(always)]
    fn first(line: &A::Line, key: &A::Words) -> u32 {
        line.first(key.as_ref())
    }

    /// The bounds ascend: six steps of a search without branches.
    #[inline(always)]
    fn count_reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
        let bound = |at: u32| (bounds[at as usize / 4] >> (16 * (at % 4))) as u16;
        let mut below = 0;
        for step in [32, 16, 8, 4, 2, 1] {
            below += step * u32::from(bound(below + step - 1) <= value);
        }
        below + u32::from(bound(below) <= value)
    }
}

pub(super) fn classify<A: Address>(table: &Table<A>, keys: &[Key<A>], found: &mut [u32]) {
    all_batches::<A, Portable>(table, keys, found);
}

/// One step for each run of bits in the mask.
#[inline(always)]
fn extract(word: u64, mut mask: u64) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while mask != 0 {
        let start = mask.trailing_zeros();
        let run = (!(mask >> start)).trailing_zeros();
        let ones = u64::MAX >> (64 - run);
        bits |= (word >> start & ones) << at;
        mask &= !(ones << start);
        at += run;
    }
    bits
}

/// Runs loops over integers.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn with_simd<R>(_simd: crate::Simd, loops: impl FnOnce() -> R) -> R {
    loops()
}

#[cfg(test)]
mod tests {
    use super::extract;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_moved_together(word: u64, mask: u64) {
            let bits = (0..64).filter(|bit| mask >> bit & 1 == 1);
            let wanted = bits.enumerate().fold(0, |sum, (to, from)| sum | (word >> from & 1) << to);
            prop_assert_eq!(extract(word, mask), wanted);
        }

        #[test]
        #[cfg(target_arch = "x86_64")]
        fn the_instruction_agrees(word: u64, mask: u64) {
            if is_x86_feature_detected!("bmi2") {
                // SAFETY: just detected.
                let wanted = unsafe { std::arch::x86_64::_pext_u64(word, mask) };
                prop_assert_eq!(extract(word, mask), wanted);
            }
        }
    }
}
