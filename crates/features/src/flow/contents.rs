//! The findings in the first payloads of a flow. Once a direction can yield nothing more, its payloads are not
//! read again. A flow without payload allocates nothing here.

use crate::dissect::{Packet, Tcp, tcp_flag};
use crate::payload::quic::Connection;
use crate::payload::tls::{ClientHello, Reason, Search};
use crate::payload::{dns, entropy};

/// The limit of bytes buffered for unfinished ClientHellos in all flows of a table. Above it, the search that was
/// fed last is abandoned.
pub(super) const MAX_HELLO_BYTES: usize = 64 << 20;

/// The index of a direction: 0 forward, 1 backward.
pub(super) type Which = usize;

/// The findings of a flow and the state of the search for more. The forward direction comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Whether the search in each direction is over.
    done: [bool; 2],
    found: Option<Box<FlowText>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct FlowText {
    entropy: [Option<f64>; 2],
    dns_name: Option<String>,
    hello: Option<ClientHello>,
    searches: [Search; 2],
    has_gap: bool,
    /// On the heap, because only QUIC flows have one.
    quic: Option<Box<Connection>>,
}

/// An entropy is never NaN.
impl Eq for FlowText {}

impl Contents {
    /// The contents of a flow whose payloads are not read.
    pub(crate) fn none() -> Self {
        Self {
            done: [true; 2],
            found: None,
        }
    }

    /// Entropy of the first payload of a direction, in bits per byte.
    pub fn entropy(&self, direction: usize) -> Option<f64> {
        let found = self.found.as_ref()?;
        found.entropy.get(direction).copied().flatten()
    }

    pub fn dns_name(&self) -> Option<&str> {
        self.found.as_ref()?.dns_name.as_deref()
    }

    pub fn hello(&self) -> Option<&ClientHello> {
        self.found.as_ref()?.hello.as_ref()
    }

    /// The QUIC connection of a flow over UDP.
    pub fn quic(&self) -> Option<&Connection> {
        self.found.as_ref()?.quic.as_deref()
    }

    /// Whether a ClientHello may be missing because a segment or packet was missing, late or truncated.
    pub fn has_gap(&self) -> bool {
        let in_quic = self.quic().is_some_and(Connection::has_gap);
        in_quic || self.found.as_ref().is_some_and(|found| found.has_gap)
    }

    #[inline]
    pub(super) fn wants(&self, packet: &Packet<'_>, direction: Which) -> bool {
        !packet.payload.is_empty() && !self.done[direction]
    }

    /// Reads a payload for which [`Self::wants`] is true. `first` is the sequence number of the direction's first byte,
    /// if it is known. `gathered` is the number of bytes that all flows buffer for unfinished ClientHellos.
    #[cold]
    pub(super) fn read(
        &mut self,
        packet: &Packet<'_>,
        direction: Which,
        first: Option<u32>,
        gathered: &mut usize,
    ) {
        let found = self.found.get_or_insert_default();
        if found.entropy[direction].is_none() {
            found.entropy[direction] = entropy::bits_per_byte(packet.payload);
            found.name(packet);
        }
        *gathered -= found.gathered();
        found.search(packet, direction, first);
        *gathered += found.gathered();
        if *gathered > MAX_HELLO_BYTES {
            *gathered -= found.give_up(direction);
        }
        self.done = [0, 1].map(|direction| self.done[direction] || found.is_over(direction));
    }

    /// Ends the search. Returns the bytes that it had buffered.
    pub(super) fn close(&mut self) -> usize {
        self.done = [true; 2];
        let Some(found) = &mut self.found else {
            return 0;
        };
        found.give_up(0) + found.give_up(1)
    }
}

impl FlowText {
    fn name(&mut self, packet: &Packet<'_>) {
        if packet.headless || self.dns_name.is_some() {
            return;
        }
        self.dns_name = match packet.key.protocol {
            packet::protocol::UDP => dns::over_udp(packet.key.ports, packet.payload),
            packet::protocol::TCP => dns::over_tcp(packet.key.ports, packet.payload),
            _ => None,
        };
    }

    fn search(&mut self, packet: &Packet<'_>, direction: Which, first: Option<u32>) {
        let is_wanted = !packet.headless && self.hello.is_none();
        if is_wanted && packet.key.protocol == packet::protocol::UDP {
            self.datagram(packet.payload, direction);
            return;
        }
        let Some(tcp) = packet.tcp.filter(|_| is_wanted) else {
            self.give_up(direction);
            return;
        };
        let search = &mut self.searches[direction];
        match search.feed(first, first_byte(tcp), packet.payload) {
            Some(Ok(hello)) => self.hello = Some(hello),
            Some(Err(reason)) => self.has_gap |= reason == Reason::Gap,
            None => {}
        }
    }

    /// Reads a UDP payload. Only QUIC needs more than the first one.
    fn datagram(&mut self, datagram: &[u8], direction: Which) {
        self.searches[direction] = Search::Over;
        if self.quic.is_none() {
            self.quic = Connection::new(datagram).map(Box::new);
        }
        if let Some(quic) = &mut self.quic {
            quic.feed(direction, datagram);
        }
    }

    /// Whether the search in a direction is over.
    fn is_over(&self, direction: Which) -> bool {
        let quic = self.quic.as_ref();
        self.searches[direction] == Search::Over && quic.is_none_or(|quic| quic.is_over(direction))
    }

    /// Bytes buffered for unfinished ClientHellos.
    fn gathered(&self) -> usize {
        let in_quic = self.quic.as_ref().map_or(0, |quic| quic.held());
        in_quic + self.in_segments(0) + self.in_segments(1)
    }

    /// Bytes buffered in TCP segments of a direction.
    fn in_segments(&self, direction: Which) -> usize {
        match &self.searches[direction] {
            Search::Gathering(accumulator) => accumulator.capacity(),
            Search::Ahead | Search::Over => 0,
        }
    }

    /// Ends a direction's search. Returns the bytes that it had buffered.
    fn give_up(&mut self, direction: Which) -> usize {
        let held = self.gathered();
        self.has_gap |= self.in_segments(direction) > 0;
        self.searches[direction] = Search::Over;
        if let Some(quic) = &mut self.quic {
            quic.end(direction);
        }
        held - self.gathered()
    }
}

/// The sequence number of a segment's first payload byte. A SYN occupies one sequence number itself.
fn first_byte(tcp: Tcp) -> u32 {
    tcp.sequence
        .wrapping_add(u32::from(tcp.flags & tcp_flag::SYN != 0))
}

#[cfg(test)]
mod tests {
    use packet::build;
    use packet::pcap::{ETHERNET, Frame};

    use super::*;
    use crate::dissect::{Tunnels, dissect};

    /// Reads the first bytes of a ClientHello of 16 KiB.
    fn read(contents: &mut Contents, gathered: &mut usize) {
        let ends = [([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into()];
        let hello = [22, 3, 3, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3];
        let frame = build::tcp(ends[0], ends[1], 0, 0).payload(hello).frame();
        let frame = Frame {
            timestamp_ns: 0,
            original_length: 0,
            link_type: ETHERNET,
            bytes: &frame,
        };
        let packet = dissect(&frame, Tunnels::Outer).expect("a whole packet");
        assert!(contents.wants(&packet, 0));
        contents.read(&packet, 0, None, gathered);
    }

    #[test]
    fn what_is_held_of_hellos_is_accounted_for() {
        let mut gathered = 100;
        let mut contents = Contents::default();
        read(&mut contents, &mut gathered);
        assert!(gathered > 100);
        gathered -= contents.close();
        assert_eq!((gathered, contents.has_gap()), (100, true));
        assert_eq!(contents.close(), 0);
    }

    #[test]
    fn beyond_the_bound_the_next_hello_is_given_up() {
        let mut gathered = MAX_HELLO_BYTES;
        let mut contents = Contents::default();
        read(&mut contents, &mut gathered);
        assert_eq!((gathered, contents.has_gap()), (MAX_HELLO_BYTES, true));
        assert_eq!(contents.done, [true, false]);
    }
}
