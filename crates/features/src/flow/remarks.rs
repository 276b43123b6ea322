//! What few flows have.

use packet::parse::Fragment;

use super::Lengths;
use crate::dissect::{Packet, Tunnel};

/// Packets that were odd in some way, or in a tunnel. A flow without any holds nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Packets older than the one before.
    pub out_of_order: u64,
    pub truncated: u64,
    pub malformed: u64,
    pub aggregated: u64,
    /// First ones included.
    pub fragments: u64,
    /// Packets without a whole transport header, forward and backward, by their frames' lengths.
    pub headless: [Lengths; 2],
    /// The tunnel of the first packet that was taken out of one, forward and backward.
    pub tunnels: [Option<Tunnel>; 2],
    /// What a model in the kernel says of the flow.
    pub classification: Option<Classification>,
}

/// A class of a model in the kernel, and its action. Both are names: the model may have gone when a row is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    pub class: &'static str,
    pub action: &'static str,
}

impl Remarks {
    /// Whether there is anything to say of a packet.
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

    /// Those of a later part of the same flow, too.
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

    /// As a flow holds them.
    pub(crate) fn held(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
