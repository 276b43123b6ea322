//! What the steering program found out about a datagram, read from in front of its frame: the twin
//! of `struct tag` in bpf/tag.h.

use packet::{ethernet, ipv4, ipv6, udp};
use xsk::{Frame, Umem};

use super::headers::Origin;

const LENGTH: usize = 24;
const AF_INET: u16 = 2;

/// A steered datagram: whose it is, and where in its frame the payload begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steered {
    pub(super) stream: u32,
    pub(super) payload_at: usize,
    pub(super) origin: Origin,
}

impl Steered {
    /// `None` for a frame that the steering program has not put its tag in front of.
    pub(super) fn read(umem: &Umem, frame: &mut Frame) -> Option<Self> {
        let (start, length) = (frame.headroom(), frame.len());
        if !frame.set(start.checked_sub(LENGTH)?, LENGTH) {
            return None;
        }
        let tag = umem.bytes(frame);
        let half = |at: usize| Some(u16::from_ne_bytes(tag.get(at..at + 2)?.try_into().ok()?));
        let stream = u32::from_ne_bytes(tag.get(20..24)?.try_into().ok()?);
        let network = match half(16)? {
            AF_INET => ipv4::HEADER,
            _ => ipv6::HEADER,
        };
        let payload = ethernet::HEADER + network + udp::HEADER;
        let origin = Origin {
            payload_length: half(12)?,
            payload_sum: u16::from_be(half(14)?),
            tos: *tag.get(18)?,
            ttl: *tag.get(19)?,
        };
        let whole = payload + usize::from(origin.payload_length) <= length;
        (whole && frame.set(start, length)).then_some(Self {
            stream,
            payload_at: start + payload,
            origin,
        })
    }
}
