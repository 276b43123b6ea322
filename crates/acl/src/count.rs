//! Counts the rules of a bucket that fix a bit to zero and to one, and the packets that have it set.

use crate::address::Address;
use crate::region::Region;

/// Bits of the widest key.
pub(crate) const MAX_KEY_BITS: usize = 5 * 64;

/// For each bit of a key, the regions that fix it.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) zeros: [u32; MAX_KEY_BITS],
    pub(crate) ones: [u32; MAX_KEY_BITS],
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self {
            zeros: [0; MAX_KEY_BITS],
            ones: [0; MAX_KEY_BITS],
        }
    }

    /// Counts the listed regions.
    pub(crate) fn count_rules<A: Address>(&mut self, regions: &[Region<A>], list: &[u32]) {
        let words = A::Words::default().as_ref().len();
        self.zeros[..64 * words].fill(0);
        self.ones[..64 * words].fill(0);
        // So few at a time stay in the nearest cache.
        for list in list.chunks(PLANE_CAPACITY) {
            for word in 0..words {
                let ones = |index: &u32| regions[*index as usize].value.as_ref()[word];
                let zeros =
                    |index: &u32| regions[*index as usize].care.as_ref()[word] & !ones(index);
                tally(list.iter().map(zeros), &mut self.zeros[64 * word..][..64]);
                tally(list.iter().map(ones), &mut self.ones[64 * word..][..64]);
            }
        }
    }

    /// Counts the bits that are set in the listed packets.
    pub(crate) fn count_packets<A: Address>(&mut self, packets: &[A::Words], list: &[u32]) {
        let words = A::Words::default().as_ref().len();
        self.ones[..64 * words].fill(0);
        for word in 0..words {
            let bits = |at: &u32| packets[*at as usize].as_ref()[word];
            tally(list.iter().map(bits), &mut self.ones[64 * word..][..64]);
        }
    }
}

/// Bits of the counters that words are first added to, and how many words fit them.
const PLANES: usize = 5;
const PLANE_CAPACITY: usize = (1 << PLANES) - 1;

/// Adds up each bit of many words. Five planes hold one bit of 64 counters each, so adding a word is
/// a ripple of a few operations, whichever bits are set.
fn tally(words: impl Iterator<Item = u64>, counters: &mut [u32]) {
    let mut planes = [0u64; PLANES];
    let mut added = 0;
    let mut drain = |planes: &mut [u64; PLANES]| {
        for (weight, plane) in planes.iter_mut().enumerate() {
            let bits = std::mem::take(plane);
            if bits != 0 {
                for (bit, counter) in counters.iter_mut().enumerate() {
                    *counter += ((bits >> bit & 1) as u32) << weight;
                }
            }
        }
    };
    for word in words {
        let mut carry = word;
        for plane in &mut planes {
            (*plane, carry) = (*plane ^ carry, *plane & carry);
        }
        added += 1;
        if added == PLANE_CAPACITY {
            drain(&mut planes);
            added = 0;
        }
    }
    drain(&mut planes);
}
