//! From frames to keys and from answers back to packets. A packet has a key when its IP header is
//! plain and its ports, if its protocol has any, are in it; all others are the kernel's.

use std::net::IpAddr;
use std::ops::Range;

use acl::{Key4, Key6};
use packet::parse::{Family, Fragment, PacketHeaders, Verdict as Reached, parse};
use packet::{ethernet, ethertype, ipv4, ipv6, protocol, tcp, udp};

use super::{Answers, Counters, Decision, Function, Verdict};
use crate::enum_names::enum_names;

/// Why a packet has no key: it is left to the kernel without a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyError {
    /// Neither IPv4 nor IPv6, or more than two VLAN tags.
    NotIp = 0,
    /// Of later fragments the ports are not known.
    Fragment = 1,
    /// IPv4 options, which routers have to look at.
    Options = 2,
    /// IPv6 extension headers.
    Extensions = 3,
    /// Cut off, or lengths that contradict each other.
    Malformed = 4,
}

enum_names!(KeyError or UnknownReason:
    NotIp = "not_ip",
    Fragment = "fragment",
    Options = "ip_options",
    Extensions = "ipv6_extensions",
    Malformed = "malformed",
);

/// No reason of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no reason to leave a packet to the kernel")]
pub struct UnknownReason(String);

/// The headers of a batch, each family's together, so that a processor reads arrays of one shape.
#[derive(Clone, Debug)]
pub struct Headers {
    function: Function,
    /// Destinations as packets carry them; none where nothing is routed.
    pub destinations4: Vec<[u8; 4]>,
    pub destinations6: Vec<[u8; 16]>,
    /// Five-tuples; none where nothing is filtered.
    pub keys4: Vec<Key4>,
    pub keys6: Vec<Key6>,
    /// The packets, by their place in the batch, that the above belong to.
    at4: Vec<u32>,
    at6: Vec<u32>,
    unkeyed: Vec<(u32, KeyError)>,
    packets: u32,
    bytes: u64,
    /// Of IPv4 and of IPv6, where whole frames are wanted.
    whole: Option<[Whole; 2]>,
}

/// Frames that have keys, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    bytes: Vec<u8>,
    /// Where each frame ends, and where its IP header begins.
    ends: Vec<usize>,
    headers: Vec<usize>,
}

impl Whole {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.headers.clear();
    }

    fn push(&mut self, frame: &[u8], header: usize) {
        self.headers.push(self.bytes.len() + header);
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// Some of them, and where in these bytes their IP headers begin.
    pub(crate) fn part(&self, part: Range<usize>) -> (&[u8], impl Iterator<Item = usize>) {
        let end = |frames: usize| frames.checked_sub(1).map_or(0, |last| self.ends[last]);
        let (start, end) = (end(part.start), end(part.end));
        let headers = self.headers[part].iter().map(move |header| header - start);
        (&self.bytes[start..end], headers)
    }
}

impl Headers {
    /// Room for batches of so many packets, with what this function reads.
    pub fn new(function: Function, batch: usize) -> Self {
        let routed = if function.routes() { batch } else { 0 };
        let filtered = if function.filters() { batch } else { 0 };
        Self {
            function,
            destinations4: Vec::with_capacity(routed),
            destinations6: Vec::with_capacity(routed),
            keys4: Vec::with_capacity(filtered),
            keys6: Vec::with_capacity(filtered),
            at4: Vec::with_capacity(batch),
            at6: Vec::with_capacity(batch),
            unkeyed: Vec::new(),
            packets: 0,
            bytes: 0,
            whole: None,
        }
    }

    /// Keeps the frames, too.
    #[must_use]
    pub fn with_frames(mut self) -> Self {
        self.whole = Some(Default::default());
        self
    }

    /// The frames that have keys of IPv4, and of IPv6, where they are kept.
    pub(crate) fn whole(&self) -> Option<&[Whole; 2]> {
        self.whole.as_ref()
    }

    /// Begins another batch.
    pub fn clear(&mut self) {
        self.destinations4.clear();
        self.destinations6.clear();
        self.keys4.clear();
        self.keys6.clear();
        self.at4.clear();
        self.at6.clear();
        self.unkeyed.clear();
        self.packets = 0;
        self.bytes = 0;
        self.whole.iter_mut().flatten().for_each(Whole::clear);
    }

    /// Adds the header of an Ethernet frame.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) {
        match read(frame) {
            Ok(FrameKey::V4(key, header)) => {
                if let Some([v4, _]) = &mut self.whole {
                    v4.push(frame, header);
                }
                self.push_key4(key);
            }
            Ok(FrameKey::V6(key, header)) => {
                if let Some([_, v6]) = &mut self.whole {
                    v6.push(frame, header);
                }
                self.push_key6(key);
            }
            Err(why) => {
                self.unkeyed.push((self.packets, why));
                self.packets += 1;
            }
        }
        self.bytes += frame.len() as u64;
    }

    /// Adds a packet that has this key, without its frame.
    #[inline]
    pub(crate) fn push_key4(&mut self, key: Key4) {
        self.at4.push(self.packets);
        if self.function.routes() {
            self.destinations4.push(key.destination);
        }
        if self.function.filters() {
            self.keys4.push(key);
        }
        self.packets += 1;
    }

    /// As `push_key4`.
    #[inline]
    pub(crate) fn push_key6(&mut self, key: Key6) {
        self.at6.push(self.packets);
        if self.function.routes() {
            self.destinations6.push(key.destination);
        }
        if self.function.filters() {
            self.keys6.push(key);
        }
        self.packets += 1;
    }

    /// Packets in the batch.
    pub fn len(&self) -> usize {
        self.packets as usize
    }

    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Packets with an IPv4 key, and with an IPv6 key.
    pub fn keyed(&self) -> (usize, usize) {
        (self.at4.len(), self.at6.len())
    }

    /// Writes the decision about each packet, in the order of the packets, and counts them.
    ///
    /// # Panics
    /// When there is not one answer to each key.
    pub fn scatter(
        &self,
        answers: &Answers,
        decisions: &mut Vec<Decision>,
        counters: &mut Counters,
    ) {
        const PUNT: Decision = Decision::new(Verdict::Punt, lpm::NO_ROUTE);
        assert_eq!(self.at4.len(), answers.v4.len(), "one answer to each key");
        assert_eq!(self.at6.len(), answers.v6.len(), "one answer to each key");
        counters.bytes += self.bytes;
        counters.decided(&answers.v4);
        counters.decided(&answers.v6);
        for (_, why) in &self.unkeyed {
            counters.unkeyed(*why);
        }
        decisions.clear();
        if self.at4.len() == self.len() {
            return decisions.extend_from_slice(&answers.v4);
        }
        decisions.resize(self.len(), PUNT);
        for (at, answer) in self.at4.iter().zip(&answers.v4) {
            decisions[*at as usize] = *answer;
        }
        for (at, answer) in self.at6.iter().zip(&answers.v6) {
            decisions[*at as usize] = *answer;
        }
    }
}

/// The key of a frame, and the offset of its IP header.
enum FrameKey {
    V4(Key4, usize),
    V6(Key6, usize),
}

#[inline]
fn read(frame: &[u8]) -> Result<FrameKey, KeyError> {
    if let Some(key) = plain4(frame) {
        return Ok(FrameKey::V4(key, IP));
    }
    plain6(frame).map_or_else(|| parsed(frame), |key| Ok(FrameKey::V6(key, IP)))
}

const IP: usize = ethernet::HEADER;

/// The key of the usual packet: no tag, no option, no fragment. `None` leaves it to [`parsed`],
/// which answers the same in every case that is answered here.
#[inline]
fn plain4(frame: &[u8]) -> Option<Key4> {
    const L4: usize = IP + ipv4::HEADER;
    let head: &[u8; L4] = frame.first_chunk()?;
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let four = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
    let whole = half(IP + 6) & 0x3fff == 0;
    if half(12) != ethertype::IPV4 || head[IP] != 0x45 || !whole {
        return None;
    }
    let transport = frame.get(L4..IP + usize::from(half(IP + 2)))?;
    let ports = plain_ports(head[IP + 9], transport)?;
    Some(Key4 {
        protocol: head[IP + 9],
        padding: [0; 3],
        source: four(IP + 12),
        destination: four(IP + 16),
        source_port: [ports[0], ports[1]],
        destination_port: [ports[2], ports[3]],
    })
}

/// As [`plain4`].
#[inline]
fn plain6(frame: &[u8]) -> Option<Key6> {
    const L4: usize = IP + ipv6::HEADER;
    let head: &[u8; L4] = frame.first_chunk()?;
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let address = |at: usize| std::array::from_fn(|byte| head[at + byte]);
    if half(12) != ethertype::IPV6 || head[IP] >> 4 != 6 {
        return None;
    }
    let transport = frame.get(L4..L4 + usize::from(half(IP + 4)))?;
    let ports = plain_ports(head[IP + 6], transport)?;
    Some(Key6 {
        protocol: head[IP + 6],
        padding: [0; 3],
        source: address(IP + 8),
        destination: address(IP + 24),
        source_port: [ports[0], ports[1]],
        destination_port: [ports[2], ports[3]],
    })
}

/// Both ports of UDP and TCP, if the header is whole.
#[inline]
fn plain_ports(number: u8, transport: &[u8]) -> Option<[u8; 4]> {
    let (shortest, length) = match number {
        protocol::UDP => {
            let udp: &[u8; udp::HEADER] = transport.first_chunk()?;
            (udp.len(), usize::from(u16::from_be_bytes([udp[4], udp[5]])))
        }
        protocol::TCP => {
            let tcp: &[u8; tcp::HEADER] = transport.first_chunk()?;
            (tcp.len(), usize::from(tcp[12] >> 4) * 4)
        }
        _ => return None,
    };
    let whole = length >= shortest && length <= transport.len();
    transport.first_chunk().copied().filter(|_| whole)
}

/// The key of any packet that has one.
fn parsed(frame: &[u8]) -> Result<FrameKey, KeyError> {
    let parsed = parse(frame).map_err(|_| KeyError::Malformed)?;
    match parsed.verdict {
        Reached::NotIp | Reached::TooManyTags => return Err(KeyError::NotIp),
        Reached::TooManyExtensions => return Err(KeyError::Extensions),
        Reached::Fragment => return Err(KeyError::Fragment),
        Reached::Complete | Reached::Unsupported => {}
    }
    if parsed.fragment != Fragment::None {
        return Err(KeyError::Fragment);
    }
    if parsed.extensions > 0 {
        return Err(KeyError::Extensions);
    }
    if parsed.family == Some(Family::V4) && parsed.l4 - parsed.l3 > ipv4::HEADER {
        return Err(KeyError::Options);
    }
    let ports = ports(&parsed, frame)?;
    match (parsed.source, parsed.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ok(FrameKey::V4(
            Key4::new(from.to_bits(), to.to_bits(), ports, parsed.protocol),
            parsed.l3,
        )),
        (IpAddr::V6(from), IpAddr::V6(to)) => Ok(FrameKey::V6(
            Key6::new(from.to_bits(), to.to_bits(), ports, parsed.protocol),
            parsed.l3,
        )),
        _ => Err(KeyError::Malformed),
    }
}

/// Rules know ports of more protocols than are parsed: those of the others lie where UDP's do.
fn ports(parsed: &PacketHeaders, frame: &[u8]) -> Result<(u16, u16), KeyError> {
    const DCCP: u8 = 33;
    const SCTP: u8 = 132;
    const UDPLITE: u8 = 136;
    match parsed.protocol {
        protocol::UDP | protocol::TCP => Ok((parsed.source_port, parsed.destination_port)),
        DCCP | SCTP | UDPLITE => {
            let rest = frame.get(parsed.l4..parsed.l3 + parsed.ip_length);
            let ports: Option<&[u8; 4]> = rest.and_then(|rest| rest.first_chunk());
            let ports = ports.ok_or(KeyError::Malformed)?;
            Ok((
                u16::from_be_bytes([ports[0], ports[1]]),
                u16::from_be_bytes([ports[2], ports[3]]),
            ))
        }
        _ => Ok((0, 0)),
    }
}
