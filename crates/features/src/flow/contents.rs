//! What the first payloads of a flow tell. Once a direction has told it, or cannot, its payloads are
//! not looked at again, and a flow without payload holds nothing.

use crate::dissect::{Packet, Tcp, tcp_flag};
use crate::payload::quic::Connection;
use crate::payload::tls::{ClientHello, Reason, Search};
use crate::payload::{dns, entropy};

/// Bytes of unfinished ClientHellos in all flows of a table: beyond it, the next one is given up.
pub(super) const MAX_HELLO_BYTES: usize = 64 << 20;

/// Which of the two directions: 0 forward, 1 backward.
pub(super) type Which = usize;

/// Findings, and the search for more. Forward comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The direction has nothing more to tell.
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
    /// On the heap, because only flows of QUIC have one.
    quic: Option<Box<Connection>>,
}

/// No entropy is NaN.
impl Eq for FlowText {}

impl Contents {
    /// Where no payload is ever read.
    pub(crate) fn none() -> Self {
        Self {
            done: [true; 2],
            found: None,
        }
    }

    /// In bits per byte, of the first payload of a direction.
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

    /// Whether a ClientHello may be missing because a segment or packet was missing, late or cut off.
    pub fn has_gap(&self) -> bool {
        let in_quic = self.quic().is_some_and(Connection::has_gap);
        in_quic || self.found.as_ref().is_some_and(|found| found.has_gap)
    }

    #[inline]
    pub(super) fn wants(&self, packet: &Packet<'_>, direction: Which) -> bool {
        !packet.payload.is_empty() && !self.done[direction]
    }

    /// Looks at a payload that is wanted. `first` is the sequence number of its direction's first byte,
    /// where it is known; `gathered` is what all flows hold of unfinished hellos.
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

    /// Ends the search: the bytes that it held.
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

    /// A payload of UDP: only that of QUIC is looked at more than once.
    fn datagram(&mut self, datagram: &[u8], direction: Which) {
        self.searches[direction] = Search::Over;
        if self.quic.is_none() {
            self.quic = Connection::new(datagram).map(Box::new);
        }
        if let Some(quic) = &mut self.quic {
            quic.feed(direction, datagram);
        }
    }

    /// Whether a direction has nothing more to tell.
    fn is_over(&self, direction: Which) -> bool {
        let quic = self.quic.as_ref();
        self.searches[direction] == Search::Over && quic.is_none_or(|quic| quic.is_over(direction))
    }

    /// Bytes held of unfinished hellos.
    fn gathered(&self) -> usize {
        let in_quic = self.quic.as_ref().map_or(0, |quic| quic.held());
        in_quic + self.in_segments(0) + self.in_segments(1)
    }

    /// Of these, in segments of a direction.
    fn in_segments(&self, direction: Which) -> usize {
        match &self.searches[direction] {
            Search::Gathering(accumulator) => accumulator.capacity(),
            Search::Ahead | Search::Over => 0,
        }
    }

    /// Ends a direction's search: the bytes that it held.
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

/// The sequence number of a segment's first byte: a SYN has one of its own.
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
