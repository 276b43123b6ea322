//! Where in its flow a packet is.

use super::Flow;
use super::activity::gap_between;
use crate::dissect::Packet;

/// A packet's place in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub flow_id: u64,
    /// Packets of the flow before it.
    pub before: u64,
    pub forward: bool,
    /// Since the packet before, of either direction; none for the first.
    pub gap_ns: Option<u64>,
    /// Older than the packet before.
    pub out_of_order: bool,
}

impl Place {
    /// That of the packet which comes next to a flow.
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
