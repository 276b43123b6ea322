//! The anomalies of a flow, which few flows have.

use packet::parse::Fragment;

use super::Lengths;
use crate::dissect::{Packet, Tunnel};

/// Packets that were odd in some way, or in a tunnel. A flow without any holds nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Packets that are older than the one before them.
    pub out_of_order: u64,
    pub truncated: u64,
    pub malformed: u64,
    pub aggregated: u64,
    /// Fragments, including first fragments.
    pub fragments: u64,
    /// Packets without a complete transport header, forward and backward, by frame length.
    pub headless: [Lengths; 2],
    /// The tunnel of the first packet that was taken out of one, forward and backward.
    pub tunnels: [Option<Tunnel>; 2],
    /// The result of a model in the kernel for this flow.
    pub classification: Option<Classification>,
}

/// The class and action chosen by a model in the kernel. Both are names, because the model may have been replaced
/// before the row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    pub class: &'static str,
    pub action: &'static str,
}

impl Remarks {
    /// Whether a packet has any anomaly.
    #[inline]
    pub(super) fn on(packet: &Packet<'_>) -> bool {
        let fragment = packet.fragment != Fragment::None;
        let odd = packet.truncated | packet.malformed | packet.aggregated | packet.headless;
        odd | fragment | packet.tunnel.is_some()
    }

    pub(super) fn add(&mut self, packet: &Packet<'_>, forward: bool) {
        self.truncated += u64::from(packet.truncated);
        self.malformed += u64::from(packet.malformed);
        self.aggregated += u64::from(packet.aggregated);
        self.fragments += u64::from(packet.fragment != Fragment::None);
        let side = usize::from(!forward);
        if packet.headless {
            self.headless[side].add(packet.wire_length);
        }
        self.tunnels[side] = self.tunnels[side].or(packet.tunnel);
    }

    /// Adds the anomalies of a later part of the same flow.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let [there, back] = &self.headless;
        Self {
            out_of_order: self.out_of_order + other.out_of_order,
            truncated: self.truncated + other.truncated,
            malformed: self.malformed + other.malformed,
            aggregated: self.aggregated + other.aggregated,
            fragments: self.fragments + other.fragments,
            headless: [there.and(&other.headless[0]), back.and(&other.headless[1])],
            tunnels: std::array::from_fn(|side| self.tunnels[side].or(other.tunnels[side])),
            classification: self.classification.or(other.classification),
        }
    }

    /// Returns the form that a flow stores, or `None` without anomalies.
    pub(crate) fn held(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
