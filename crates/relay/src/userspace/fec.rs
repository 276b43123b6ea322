//! Exclusive-or parity over groups of datagrams: one parity datagram rebuilds any one lost datagram
//! of its group.
//!
//! A parity datagram's payload is a header of 16 bytes and the parity, integers big-endian:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 3 | 0xfe, "LF": a first byte that neither RTP, STUN, DTLS nor TURN begins with (RFC 7983) |
//! | 3 | 1 | version, 1 |
//! | 4 | 1 | datagrams in the group |
//! | 5 | 1 | 0 |
//! | 6 | 2 | exclusive or of their payloads' lengths |
//! | 8 | 8 | how many datagrams of the stream were forwarded before the group's first |
//! | 16 | - | exclusive or of their payloads, each padded with zeros to the longest |
//!
//! It follows the last datagram of its group. A receiver has the group from the datagrams since the
//! parity before, and from the counts of the two whether that parity was the last.

/// Bytes of the header.
const HEADER: usize = 16;
const MARK: [u8; 4] = [0xfe, b'L', b'F', 1];

/// Takes the datagrams of a stream as they are forwarded.
#[derive(Debug)]
pub(super) struct Encoder {
    group: u8,
    taken: u8,
    base: u64,
    lengths: u16,
    /// Room for the header, then the exclusive or so far.
    parity: Vec<u8>,
}

impl Encoder {
    /// For groups of this many datagrams.
    pub(super) fn new(group: u8) -> Self {
        Self {
            group,
            taken: 0,
            base: 0,
            lengths: 0,
            parity: vec![0; HEADER],
        }
    }

    pub(super) fn group(&self) -> u8 {
        self.group
    }

    /// Takes one datagram's payload; returns the parity datagram's when it completes a group.
    pub(super) fn add(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let end = HEADER + payload.len();
        if self.parity.len() < end {
            self.parity.resize(end, 0);
        }
        for (sum, byte) in self.parity[HEADER..end].iter_mut().zip(payload) {
            *sum ^= byte;
        }
        // A UDP payload is shorter than 64 KiB.
        self.lengths ^= u16::try_from(payload.len()).unwrap_or(u16::MAX);
        self.taken += 1;
        (self.taken == self.group).then(|| self.complete())
    }

    fn complete(&mut self) -> Vec<u8> {
        let longest = self.parity.len();
        let mut done = std::mem::replace(&mut self.parity, Vec::with_capacity(longest));
        self.parity.resize(HEADER, 0);
        done[..4].copy_from_slice(&MARK);
        done[4] = self.group;
        done[6..8].copy_from_slice(&self.lengths.to_be_bytes());
        done[8..HEADER].copy_from_slice(&self.base.to_be_bytes());
        self.base += u64::from(self.group);
        self.taken = 0;
        self.lengths = 0;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lost datagram of a group, from its parity and the others.
    fn rebuild(parity: &[u8], others: &[&[u8]]) -> Vec<u8> {
        assert_eq!(parity[..4], MARK);
        assert_eq!(usize::from(parity[4]), others.len() + 1);
        let mut length = usize::from(u16::from_be_bytes([parity[6], parity[7]]));
        let mut payload = parity[HEADER..].to_vec();
        for other in others {
            length ^= other.len();
            payload
                .iter_mut()
                .zip(*other)
                .for_each(|(sum, b)| *sum ^= b);
        }
        assert!(payload[length..].iter().all(|byte| *byte == 0));
        payload.truncate(length);
        payload
    }

    fn datagrams(count: u64) -> Vec<Vec<u8>> {
        let byte = |at: u64| u8::try_from(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).unwrap();
        (0..count)
            .map(|n| {
                (0..(n * 131) % 1400)
                    .map(|at| byte(n * 1400 + at))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn any_one_lost_datagram_is_rebuilt_bit_by_bit() {
        for group in [2, 3, 10, 64] {
            let sent = datagrams(u64::from(group) * 3);
            let mut encoder = Encoder::new(group);
            for (groups, whole) in (0..).zip(sent.chunks(usize::from(group))) {
                let parities: Vec<_> = whole.iter().filter_map(|d| encoder.add(d)).collect();
                assert_eq!(parities.len(), 1);
                let base = u64::from_be_bytes(parities[0][8..16].try_into().unwrap());
                assert_eq!(base, groups * u64::from(group));
                for lost in 0..whole.len() {
                    let mut others: Vec<&[u8]> = whole.iter().map(Vec::as_slice).collect();
                    let original = others.remove(lost);
                    assert_eq!(rebuild(&parities[0], &others), original);
                }
            }
        }
    }

    #[test]
    fn a_group_that_is_not_full_has_no_parity() {
        let mut encoder = Encoder::new(10);
        assert!(
            datagrams(9)
                .iter()
                .all(|datagram| encoder.add(datagram).is_none())
        );
    }
}
