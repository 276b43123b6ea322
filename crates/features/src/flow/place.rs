//! The position of a packet in its flow.

use super::Flow;
use super::activity::gap_between;
use crate::dissect::Packet;

/// The position of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub flow_id: u64,
    /// The number of packets before it in the flow.
    pub before: u64,
    pub forward: bool,
    /// Nanoseconds since the previous packet of either direction; `None` for the first packet.
    pub gap_ns: Option<u64>,
    /// Whether the packet is older than the previous packet.
    pub out_of_order: bool,
}

impl Place {
    /// The position of a packet that is about to be added to this flow.
    pub(crate) fn next(flow: &Flow, packet: &Packet<'_>) -> Self {
        let before = flow.packets();
        Self {
            flow_id: flow.id(),
            before,
            forward: packet.sender == flow.initiator,
            gap_ns: (before > 0).then(|| gap_between(flow.last_ns, packet.time_ns)),
            out_of_order: before > 0 && packet.time_ns < flow.last_ns,
        }
    }
}
