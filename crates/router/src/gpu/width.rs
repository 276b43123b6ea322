//! What comes back of a decision: all of it, or no more bits than there are to tell. gpu/results.h is the
//! twin.

use super::Error;
use crate::engine::{Decision, Function, Verdict};

/// What of a decision comes back from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// The decision as it is, in four bytes.
    U32,
    /// Two bytes.
    U16,
    /// As many bits as the next hops in use need, and two for the verdict.
    Compact,
}

/// Bits of a verdict.
const VERDICT: u32 = 2;
/// Bits of a decision as it is.
const WHOLE: u32 = u32::BITS;

impl Width {
    pub const ALL: [Self; 3] = [Self::U32, Self::U16, Self::Compact];

    /// How people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::U16 => "u16",
            Self::Compact => "compact",
        }
    }

    /// The highest number of a next hop that fits.
    pub(super) const fn most(self) -> u16 {
        match self {
            Self::U16 => u16::MAX >> VERDICT,
            Self::U32 | Self::Compact => lpm::NextHop::MAX,
        }
    }

    /// # Errors
    /// A next hop whose number does not fit.
    pub(super) fn holds(self, hop: u16) -> Result<(), Error> {
        let most = self.most();
        if hop <= most {
            return Ok(());
        }
        Err(Error::Width { hop, most })
    }

    /// Bits of each decision about packets of which none goes to a hop above this one.
    pub(super) fn bits(self, function: Function, highest: u16) -> u32 {
        match self {
            Self::U32 => WHOLE,
            Self::U16 => u16::BITS,
            Self::Compact if function.routes() => VERDICT + (u16::BITS - highest.leading_zeros()),
            Self::Compact => VERDICT,
        }
    }
}

/// Bytes that come back of so many decisions.
pub(super) fn bytes(decisions: usize, bits: u32) -> usize {
    (decisions * bits as usize).div_ceil(WHOLE as usize) * size_of::<u32>()
}

/// Whether decisions are cut to these bits.
pub(super) const fn is_cut(bits: u32) -> bool {
    bits < WHOLE
}

/// What came back.
pub(super) fn decisions(bytes: &[u8], bits: u32) -> impl Fn(usize) -> Decision {
    let (words, _) = bytes.as_chunks();
    let word = move |at: usize| {
        let word = words.get(at);
        word.map_or(0, |word| u64::from(u32::from_le_bytes(*word)))
    };
    move |at| {
        let first = at * bits as usize;
        let at = first / WHOLE as usize;
        let both = word(at) | word(at + 1) << WHOLE;
        let cut = both >> (first % WHOLE as usize) & ((1 << bits) - 1);
        let cut = u32::try_from(cut).unwrap_or(u32::MAX);
        if is_cut(bits) {
            long(cut)
        } else {
            Decision::from_bits(cut)
        }
    }
}

fn long(cut: u32) -> Decision {
    let verdict = Verdict::ALL[cut as usize & 3];
    Decision::new(verdict, u16::try_from(cut >> VERDICT).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bits_as_next_hops_need() {
        let bits = |highest| Width::Compact.bits(Function::Both, highest);
        assert_eq!([0, 1, 2, 3, 200, 0x7fff].map(bits), [2, 3, 4, 4, 10, 17]);
        assert_eq!(Width::Compact.bits(Function::Acl, 0x7fff), 2);
        assert_eq!(Width::U16.bits(Function::Lpm, 3), 16);
        assert_eq!(bytes(3, 16), 8);
        assert_eq!(bytes(16, 2), 4);
        assert_eq!(bytes(17, 2), 8);
    }

    #[test]
    fn a_next_hop_that_does_not_fit_is_refused_with_what_to_do() {
        Width::U16.holds(16_383).unwrap();
        let refused = Width::U16.holds(16_384).unwrap_err().to_string();
        assert!(refused.contains("u32"), "{refused}");
        Width::Compact.holds(lpm::NextHop::MAX).unwrap();
    }
}
