//! What the steering program found out about a datagram, read from in front of its frame.

use bpf::Plain as _;
use packet::{ethernet, ipv4, ipv6, udp};
use xsk::{Frame, Umem};

use super::headers::Origin;
use crate::kernel::skel::types;

const LENGTH: usize = size_of::<types::tag>();
const AF_INET: u16 = 2;

/// A steered datagram: whose it is, and where in its frame the payload begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteeredDatagram {
    pub(super) stream: u32,
    pub(super) payload_at: usize,
    pub(super) origin: Origin,
}

impl SteeredDatagram {
    /// `None` for a frame that the steering program has not put its tag in front of.
    pub(super) fn read(umem: &Umem, frame: &mut Frame) -> Option<Self> {
        let (start, length) = (frame.headroom(), frame.len());
        if !frame.set(start.checked_sub(LENGTH)?, LENGTH) {
            return None;
        }
        let tag = types::tag::read(umem.bytes(frame))?;
        let network = match tag.family {
            AF_INET => ipv4::HEADER,
            _ => ipv6::HEADER,
        };
        let payload = ethernet::HEADER + network + udp::HEADER;
        let origin = Origin {
            payload_length: tag.payload_length,
            payload_sum: u16::from_be(tag.payload_sum),
            tos: tag.tos,
            ttl: tag.ttl,
        };
        let whole = payload + usize::from(origin.payload_length) <= length;
        (whole && frame.set(start, length)).then_some(Self {
            stream: tag.stream,
            payload_at: start + payload,
            origin,
        })
    }
}
