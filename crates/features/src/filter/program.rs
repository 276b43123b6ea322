//! The evaluated form of a filter: steps that each test one field and name the next step, here and in the kernel
//! (`bpf/filter.h`). Jumps only go forward, so a packet executes each step at most once.

use crate::dissect::Packet;
use crate::key::{Endpoint, Sender};

use super::expression::Network;
use super::networks::NetworkSet;

/// The maximum number of steps.
pub(super) const MAX_STEPS: usize = 2048;
/// Words of 64 bits in a set with one bit per port.
pub(crate) const PORT_WORDS: usize = 1024;

/// One or more compiled expressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Execution starts with the first step.
    pub(crate) steps: Vec<Step>,
    pub(crate) ports: Vec<PortSet>,
    pub(crate) networks: Vec<NetworkSet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) check: Check,
    pub(crate) on_true: Target,
    pub(crate) on_false: Target,
}

/// The target of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A later step.
    Step(u16),
    /// An end: the index of a class, or `REJECT`.
    End(u16),
}

/// The end for packets that the filter rejects.
pub(crate) const REJECT: u16 = 0x7fff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Whether there is such a field, and in this range.
    Field(Field, u64, u64),
    /// Whether the sender's, or the receiver's, port is in a set.
    PortSet(End, u16),
    Network(End, Network),
    NetworkSet(End, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Version,
    Protocol,
    /// On the wire.
    Length,
    /// The outermost tag's id.
    Vlan,
    Port(End),
}

/// An end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
}

/// A bit for each port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortSet(pub(crate) Box<[u64; PORT_WORDS]>);

impl Program {
    /// The end that a packet comes to.
    #[inline]
    pub(super) fn run(&self, packet: &Packet<'_>) -> u16 {
        let mut at = 0;
        while let Some(step) = self.steps.get(usize::from(at)) {
            let target = if self.holds(step.check, packet) {
                step.on_true
            } else {
                step.on_false
            };
            match target {
                Target::Step(next) => at = next,
                Target::End(end) => return end,
            }
        }
        0
    }

    #[inline]
    fn holds(&self, check: Check, packet: &Packet<'_>) -> bool {
        match check {
            Check::Field(field, low, high) => {
                field_of(field, packet).is_some_and(|value| (low..=high).contains(&value))
            }
            Check::PortSet(end, set) => {
                port(packet, end).is_some_and(|port| self.ports[usize::from(set)].contains(port))
            }
            Check::Network(end, network) => {
                let address = endpoint(packet, end).address;
                packet.key.version == network.version && address & network.mask() == network.address
            }
            Check::NetworkSet(end, set) => self.networks[usize::from(set)]
                .contains(packet.key.version, endpoint(packet, end).address),
        }
    }
}

impl PortSet {
    pub(super) fn new(ports: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut words = Box::new([0; PORT_WORDS]);
        for port in ports.into_iter().flat_map(|(low, high)| low..=high) {
            words[usize::from(port >> 6)] |= 1 << (port & 63);
        }
        Self(words)
    }

    fn contains(&self, port: u16) -> bool {
        self.0[usize::from(port >> 6)] >> (port & 63) & 1 == 1
    }
}

fn field_of(field: Field, packet: &Packet<'_>) -> Option<u64> {
    match field {
        Field::Version => Some(packet.key.version.into()),
        Field::Protocol => Some(packet.key.protocol.into()),
        Field::Length => Some(packet.wire_length.into()),
        Field::Vlan => (packet.link.vlan_tags > 0).then_some(packet.link.vlan.into()),
        Field::Port(end) => port(packet, end).map(u64::from),
    }
}

/// None in packets without ports: of another protocol, or with a transport header that is cut off or in
/// another fragment.
fn port(packet: &Packet<'_>, end: End) -> Option<u16> {
    use packet::protocol::{TCP, UDP};
    const DCCP: u8 = 33;
    const SCTP: u8 = 132;
    const UDP_LITE: u8 = 136;
    let unknown = packet.headless && packet.key.ports == [0, 0];
    let has = matches!(packet.key.protocol, TCP | UDP | SCTP | DCCP | UDP_LITE) && !unknown;
    has.then(|| endpoint(packet, end).port)
}

fn endpoint(packet: &Packet<'_>, end: End) -> Endpoint {
    let sender: Sender = match end {
        End::Source => packet.sender,
        End::Destination => packet.sender.other(),
    };
    packet.key.endpoint(sender)
}
