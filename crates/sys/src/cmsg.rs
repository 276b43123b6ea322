//! Control messages that travel with a datagram: what a receiver learns beside the payload, and
//! what a sender may choose packet by packet. Encoded as plain bytes; the system calls are in `mmsg`.

use std::net::{IpAddr, SocketAddr};

const WORD: usize = size_of::<usize>();
/// `struct cmsghdr`: length (a `size_t`), level, type.
const HEADER: usize = WORD + 8;

/// Room for every control message that one datagram can carry here, aligned as `cmsghdr` is.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Control(pub(crate) [u8; 256]);

impl Control {
    pub(crate) const fn empty() -> Self {
        Self([0; 256])
    }
}

/// Information from the kernel about one received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvInfo {
    /// Bytes in the buffer.
    pub len: usize,
    /// The buffer was too short and the rest of the datagram is lost.
    pub truncated: bool,
    pub source: Option<SocketAddr>,
    /// The destination address in the IP header (a group, for multicast); needs `packet_info`.
    pub destination: Option<IpAddr>,
    /// The interface it arrived on; needs `packet_info`.
    pub ifindex: Option<u32>,
    /// TTL or hop limit; needs `receive_ttl`.
    pub ttl: Option<u8>,
    /// TOS or traffic class byte; needs `receive_tos`.
    pub tos: Option<u8>,
    /// With UDP GRO: the buffer holds datagrams of this many bytes each, the last may be shorter.
    pub segment: Option<u16>,
    /// Datagrams this socket has lost for want of buffer since it was opened; needs `count_drops`.
    pub dropped: Option<u32>,
    /// The mark of the packet; needs `receive_mark`.
    pub mark: Option<u32>,
}

impl RecvInfo {
    /// Takes in every control message of `control` that is known here.
    pub(crate) fn read_control(&mut self, mut control: &[u8]) {
        while let Some((level, kind, data, rest)) = split_first(control) {
            self.take(level, kind, data);
            control = rest;
        }
    }

    fn take(&mut self, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                self.ifindex = word(data);
                self.destination = bytes::<4>(data, 8).map(IpAddr::from);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.destination = bytes::<16>(data, 0).map(IpAddr::from);
                self.ifindex = data.get(16..).and_then(word);
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.ttl = word(data).and_then(|ttl| u8::try_from(ttl).ok());
            }
            // The kernel hands IPv4's TOS over as one byte and IPv6's traffic class as an int.
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = data.first().copied(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.tos = word(data).and_then(|tos| u8::try_from(tos).ok());
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment = word(data).and_then(|size| u16::try_from(size).ok());
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.dropped = word(data),
            (libc::SOL_SOCKET, libc::SO_MARK) => self.mark = word(data),
            _ => {}
        }
    }
}

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl From<IpAddr> for Family {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// The options of one outgoing datagram. `None` keeps the socket's own setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    family: Family,
    to: Option<SocketAddr>,
    /// Send from this address, which must be one of this machine's and of the socket's family.
    pub source: Option<IpAddr>,
    /// Leave by this interface whatever the routing table says.
    pub ifindex: Option<u32>,
    /// TTL or hop limit.
    pub ttl: Option<u8>,
    /// TOS or traffic class byte.
    pub tos: Option<u8>,
    /// UDP GSO: cut the payload into datagrams of this many bytes, the last may be shorter.
    pub segment: Option<u16>,
}

impl Outgoing {
    /// To an address, of the same family as the socket.
    pub const fn to(to: SocketAddr) -> Self {
        let family = match to {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        };
        Self {
            to: Some(to),
            ..Self::connected(family)
        }
    }

    /// To whom the socket is connected.
    pub const fn connected(family: Family) -> Self {
        Self {
            family,
            to: None,
            source: None,
            ifindex: None,
            ttl: None,
            tos: None,
            segment: None,
        }
    }

    pub(crate) fn destination(&self) -> Option<SocketAddr> {
        self.to
    }

    /// Writes the control messages and returns how many bytes of `control` they use.
    pub(crate) fn write_control(&self, control: &mut Control) -> usize {
        let mut writer = Writer {
            bytes: &mut control.0,
            used: 0,
        };
        let (level, ttl, tos) = match self.family {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_TOS),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, libc::IPV6_TCLASS),
        };
        if self.source.is_some() || self.ifindex.is_some() {
            self.write_packet_info(&mut writer);
        }
        if let Some(value) = self.ttl {
            writer.push(level, ttl, &i32::from(value).to_ne_bytes());
        }
        if let Some(value) = self.tos {
            writer.push(level, tos, &i32::from(value).to_ne_bytes());
        }
        if let Some(size) = self.segment {
            writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        writer.used
    }

    /// `in_pktinfo` is interface, source, destination (ignored); `in6_pktinfo` source, interface.
    fn write_packet_info(&self, writer: &mut Writer<'_>) {
        let ifindex = self.ifindex.unwrap_or(0).to_ne_bytes();
        match self.family {
            Family::V4 => {
                let source = match self.source {
                    Some(IpAddr::V4(ip)) => ip.octets(),
                    _ => [0; 4],
                };
                let mut info = [0; 12];
                info[0..4].copy_from_slice(&ifindex);
                info[4..8].copy_from_slice(&source);
                writer.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            Family::V6 => {
                let source = match self.source {
                    Some(IpAddr::V6(ip)) => ip.octets(),
                    _ => [0; 16],
                };
                let mut info = [0; 20];
                info[0..16].copy_from_slice(&source);
                info[16..20].copy_from_slice(&ifindex);
                writer.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8; 256],
    used: usize,
}

impl Writer<'_> {
    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let length = HEADER + data.len();
        let message = &mut self.bytes[self.used..self.used + align(length)];
        message[..WORD].copy_from_slice(&length.to_ne_bytes());
        message[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        message[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER..length].copy_from_slice(data);
        self.used += align(length);
    }
}

/// Level, type, data of the first control message, and the bytes after it.
fn split_first(control: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    let length = usize::from_ne_bytes(bytes(control, 0)?);
    let data = control.get(HEADER..length)?;
    let level = i32::from_ne_bytes(bytes(control, WORD)?);
    let kind = i32::from_ne_bytes(bytes(control, WORD + 4)?);
    let rest = control.get(align(length)..).unwrap_or_default();
    Some((level, kind, data, rest))
}

fn align(length: usize) -> usize {
    length.next_multiple_of(WORD)
}

fn word(data: &[u8]) -> Option<u32> {
    bytes(data, 0).map(u32::from_ne_bytes)
}

fn bytes<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver's messages have the same layout, except that IPv4 swaps the two addresses of
    /// `in_pktinfo`: what is written as a source comes back as a zero destination.
    #[test]
    fn everything_written_is_read() {
        let mut outgoing = Outgoing::to("[2001:db8::1]:9".parse().unwrap());
        outgoing.source = Some("2001:db8::2".parse().unwrap());
        outgoing.ifindex = Some(7);
        outgoing.ttl = Some(63);
        outgoing.tos = Some(0xb8);
        let mut control = Control([0xff; 256]);
        let used = outgoing.write_control(&mut control);
        let mut received = RecvInfo::default();
        received.read_control(&control.0[..used]);
        assert_eq!(received.destination, outgoing.source);
        assert_eq!(received.ifindex, Some(7));
        assert_eq!(received.ttl, Some(63));
        assert_eq!(received.tos, Some(0xb8));
    }

    #[test]
    fn nothing_chosen_writes_nothing() {
        let mut control = Control::empty();
        assert_eq!(
            Outgoing::connected(Family::V4).write_control(&mut control),
            0
        );
    }

    #[test]
    fn a_message_cut_short_ends_the_reading() {
        let mut outgoing = Outgoing::connected(Family::V4);
        outgoing.ttl = Some(9);
        let mut control = Control::empty();
        let used = outgoing.write_control(&mut control);
        for cut in 0..used - 4 {
            let mut received = RecvInfo::default();
            received.read_control(&control.0[..cut]);
            assert_eq!(received, RecvInfo::default(), "{cut} bytes");
        }
    }

    #[test]
    fn a_zero_length_does_not_loop() {
        let mut received = RecvInfo::default();
        received.read_control(&[0; 64]);
        assert_eq!(received, RecvInfo::default());
    }
}
