//! A packet of which some bytes and properties are known.

use std::net::IpAddr;

/// A value of which some bits are known.
///
/// The width is fixed when the value is made; it is at most [`MAX_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    value: [u8; MAX_BYTES],
    /// A bit is set where the bit of `value` is known. Unknown bits of `value` are 0.
    known: [u8; MAX_BYTES],
    length: usize,
}

/// The registers of nftables hold 64 bytes together, and no value is longer.
pub(crate) const MAX_BYTES: usize = 64;

/// The answer to a question about a value that may not be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    pub(crate) fn negate_if(self, condition: bool) -> Self {
        match (self, condition) {
            (Self::True, true) => Self::False,
            (Self::False, true) => Self::True,
            _ => self,
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::True, _) | (_, Self::True) => Self::True,
            (Self::False, Self::False) => Self::False,
            _ => Self::Unknown,
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::True, Self::True) => Self::True,
            _ => Self::Unknown,
        }
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Bits {
    /// `length` bytes of which nothing is known.
    pub(crate) fn unknown(length: usize) -> Self {
        Self {
            value: [0; MAX_BYTES],
            known: [0; MAX_BYTES],
            length: length.min(MAX_BYTES),
        }
    }

    /// Exactly these bytes; those behind [`MAX_BYTES`] are left out.
    pub(crate) fn exact(bytes: &[u8]) -> Self {
        let mut bits = Self::unknown(bytes.len());
        bits.value[..bits.length].copy_from_slice(&bytes[..bits.length]);
        bits.known[..bits.length].fill(0xff);
        bits
    }

    /// An address of which the first `prefix_len` bits are known.
    pub(crate) fn prefix(address: IpAddr, prefix_len: u8) -> Self {
        let mut bits = match address {
            IpAddr::V4(address) => Self::exact(&address.octets()),
            IpAddr::V6(address) => Self::exact(&address.octets()),
        };
        for at in usize::from(prefix_len)..8 * bits.length {
            let bit = 0x80 >> (at % 8);
            bits.value[at / 8] &= !bit;
            bits.known[at / 8] &= !bit;
        }
        bits
    }

    /// The bytes, where all are known.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        let known = self.known[..self.length].iter().all(|byte| *byte == 0xff);
        known.then(|| &self.value[..self.length])
    }

    /// The part from `offset`; what lies outside is unknown.
    pub(crate) fn slice(&self, offset: usize, length: usize) -> Self {
        let mut part = Self::unknown(length);
        for at in 0..part.length {
            if let (Some(value), Some(known)) =
                (self.value.get(offset + at), self.known.get(offset + at))
                && offset + at < self.length
            {
                part.value[at] = *value;
                part.known[at] = *known;
            }
        }
        part
    }

    /// Writes `part` at `offset`; what lies outside is left out.
    pub(crate) fn write(&mut self, offset: usize, part: &Self) {
        for at in 0..part.length {
            if offset + at < self.length {
                self.value[offset + at] = part.value[at];
                self.known[offset + at] = part.known[at];
            }
        }
    }

    /// Writes `part` at `offset` as the kernel fills a register: the rest of its last word becomes 0.
    pub(crate) fn load(&mut self, offset: usize, part: &Self) {
        self.write(offset, part);
        let padding = part.length.next_multiple_of(4) - part.length;
        self.write(offset + part.length, &Self::exact(&[0; 4][..padding]));
    }

    /// `(self & mask) ^ xor`, byte by byte.
    pub(crate) fn mask_xor(&self, mask: &[u8], xor: &[u8]) -> Self {
        let mut result = *self;
        for at in 0..self.length {
            let mask = mask.get(at).copied().unwrap_or(0);
            let xor = xor.get(at).copied().unwrap_or(0);
            result.known[at] |= !mask;
            result.value[at] = ((self.value[at] & mask) ^ xor) & result.known[at];
        }
        result
    }

    /// With the bytes of every group of `size` in the opposite order.
    pub(crate) fn swap(&self, size: usize) -> Self {
        let mut result = *self;
        if size > 1 {
            for group in result.value[..self.length].chunks_exact_mut(size) {
                group.reverse();
            }
            for group in result.known[..self.length].chunks_exact_mut(size) {
                group.reverse();
            }
        }
        result
    }

    /// What is known of both.
    pub(crate) fn join(&self, other: &Self) -> Self {
        let mut result = *self;
        for at in 0..self.length {
            let same = !(self.value[at] ^ other.value[at]);
            result.known[at] = self.known[at] & other.known[at] & same;
            result.value[at] &= result.known[at];
        }
        result
    }

    /// Whether the first bytes are these.
    pub(crate) fn equals(&self, bytes: &[u8]) -> Truth {
        let mut all_known = true;
        for (at, byte) in bytes.iter().enumerate().take(MAX_BYTES) {
            let known = if at < self.length { self.known[at] } else { 0 };
            if (self.value[at] ^ byte) & known != 0 {
                return Truth::False;
            }
            all_known &= known == 0xff;
        }
        if all_known {
            Truth::True
        } else {
            Truth::Unknown
        }
    }

    /// Whether the first bytes, compared as `memcmp` does, are at least these.
    pub(crate) fn is_at_least(&self, bytes: &[u8]) -> Truth {
        let length = bytes.len().min(MAX_BYTES);
        let (lowest, highest) = self.extremes();
        if lowest[..length] >= bytes[..length] {
            Truth::True
        } else if highest[..length] < bytes[..length] {
            Truth::False
        } else {
            Truth::Unknown
        }
    }

    /// Whether the first bytes, compared as `memcmp` does, are at most these.
    pub(crate) fn is_at_most(&self, bytes: &[u8]) -> Truth {
        let length = bytes.len().min(MAX_BYTES);
        let (lowest, highest) = self.extremes();
        if highest[..length] <= bytes[..length] {
            Truth::True
        } else if lowest[..length] > bytes[..length] {
            Truth::False
        } else {
            Truth::Unknown
        }
    }

    fn extremes(&self) -> ([u8; MAX_BYTES], [u8; MAX_BYTES]) {
        let mut highest = [0xff; MAX_BYTES];
        for (at, byte) in highest.iter_mut().enumerate() {
            *byte = self.value[at] | !self.known[at];
        }
        (self.value, highest)
    }
}

/// A device as rules can name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub index: u32,
    pub name: String,
}

/// What the routing tables say of an address (`rtm_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    Unicast = 1,
    Local = 2,
    Broadcast = 3,
    Multicast = 5,
}

/// UDP packets of one kind, as a hook of the kernel would see them.
///
/// Every packet of the kind is complete: it has no IP options, extension headers or fragments, and its checksums are right.
#[derive(Clone, Debug)]
pub struct Flow {
    /// A prefix that holds every source address.
    pub source: (IpAddr, u8),
    /// None: any port.
    pub source_port: Option<u16>,
    pub destination: IpAddr,
    pub destination_kind: AddressKind,
    pub destination_port: u16,
    /// The user whose socket sends it, on the way out.
    pub user: Option<u32>,
    /// The device by which packets come in; none where this machine sends them.
    pub ingress: Option<Device>,
    /// The device by which packets leave; none where this machine receives them.
    pub egress: Option<Device>,
}

/// Packets of one IP version that this machine forwards, of any protocol, from and to any address, whole or in fragments.
///
/// None has IPv4 options, none is for this machine, and none goes to a broadcast or multicast address.
#[derive(Clone, Debug)]
pub struct Transit {
    pub v4: bool,
    /// The device by which packets come in.
    pub ingress: Device,
    /// The device by which packets leave; none where that is not known yet.
    pub egress: Option<Device>,
    /// Whether the packets are in frames with a VLAN tag at the hooks of devices.
    pub tagged: bool,
}

/// A part of a packet from which rules read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Network,
    Transport,
}

/// What is known of every packet that a question is about.
#[derive(Clone, Debug)]
pub(crate) struct PacketClass {
    pub(crate) v4: bool,
    /// None: any.
    pub(crate) protocol: Option<u8>,
    /// Prefixes that hold every source and every destination address.
    pub(crate) source: (IpAddr, u8),
    pub(crate) destination: (IpAddr, u8),
    /// None: any.
    pub(crate) source_port: Option<u16>,
    pub(crate) destination_port: Option<u16>,
    pub(crate) destination_kind: AddressKind,
    pub(crate) user: Option<u32>,
    pub(crate) ingress: Option<Device>,
    pub(crate) egress: Option<Device>,
    /// States of connection tracking that the packets can have (`NF_CT_STATE_BIT`).
    pub(crate) states: &'static [u32],
    /// No packet is a fragment.
    pub(crate) whole: bool,
    /// A VLAN tag stands before the network header.
    pub(crate) tagged: bool,
}

/// `IPPROTO_UDP`
const UDP: u8 = 17;

impl From<&Flow> for PacketClass {
    fn from(flow: &Flow) -> Self {
        /// New, established, related: what a correct UDP packet can be.
        const STATES: &[u32] = &[8, 2, 4];
        let v4 = flow.destination.is_ipv4();
        Self {
            v4,
            protocol: Some(UDP),
            source: flow.source,
            destination: (flow.destination, if v4 { 32 } else { 128 }),
            source_port: flow.source_port,
            destination_port: Some(flow.destination_port),
            destination_kind: flow.destination_kind,
            user: flow.user,
            ingress: flow.ingress.clone(),
            egress: flow.egress.clone(),
            states: STATES,
            whole: true,
            tagged: false,
        }
    }
}

impl From<&Transit> for PacketClass {
    fn from(packets: &Transit) -> Self {
        /// New, established, related, invalid.
        const STATES: &[u32] = &[8, 2, 4, 1];
        let any: IpAddr = if packets.v4 {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        Self {
            v4: packets.v4,
            protocol: None,
            source: (any, 0),
            destination: (any, 0),
            source_port: None,
            destination_port: None,
            destination_kind: AddressKind::Unicast,
            user: None,
            ingress: Some(packets.ingress.clone()),
            egress: packets.egress.clone(),
            states: STATES,
            whole: false,
            tagged: packets.tagged,
        }
    }
}

impl PacketClass {
    /// What is known of a header from its first byte on.
    pub(crate) fn header(&self, header: Header) -> Bits {
        match header {
            Header::Transport => {
                let mut bits = Bits::unknown(8);
                for (at, port) in [(0, self.source_port), (2, self.destination_port)] {
                    if let Some(port) = port {
                        bits.write(at, &Bits::exact(&port.to_be_bytes()));
                    }
                }
                bits
            }
            Header::Network if self.tagged => Bits::unknown(MAX_BYTES),
            Header::Network if self.v4 => {
                let mut bits = Bits::unknown(20);
                // Version 4, five words.
                bits.write(0, &Bits::exact(&[0x45]));
                if self.whole {
                    // An offset of 0 without MF: the reserved bit and DF are any.
                    bits.write(6, &Bits::unknown(2).mask_xor(&[0xc0, 0], &[0, 0]));
                }
                if let Some(protocol) = self.protocol {
                    bits.write(9, &Bits::exact(&[protocol]));
                }
                bits.write(12, &Bits::prefix(self.source.0, self.source.1));
                bits.write(16, &Bits::prefix(self.destination.0, self.destination.1));
                bits
            }
            Header::Network => {
                let mut bits = Bits::unknown(40);
                bits.write(0, &Bits::unknown(1).mask_xor(&[0x0f], &[0x60]));
                if let Some(protocol) = self.protocol {
                    bits.write(6, &Bits::exact(&[protocol]));
                }
                bits.write(8, &Bits::prefix(self.source.0, self.source.1));
                bits.write(24, &Bits::prefix(self.destination.0, self.destination.1));
                bits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_need_the_bits_that_decide() {
        let bits = Bits::prefix("10.1.0.0".parse().unwrap(), 16);
        assert_eq!(bits.equals(&[10, 1, 2, 3]), Truth::Unknown);
        assert_eq!(bits.equals(&[10, 2, 2, 3]), Truth::False);
        assert_eq!(bits.equals(&[10, 1]), Truth::True);
        assert_eq!(bits.is_at_least(&[10, 0, 255, 255]), Truth::True);
        assert_eq!(bits.is_at_least(&[10, 2, 0, 0]), Truth::False);
        assert_eq!(bits.is_at_most(&[10, 1, 255, 255]), Truth::True);
        assert_eq!(bits.is_at_most(&[10, 1, 0, 0]), Truth::Unknown);
        assert_eq!(bits.is_at_most(&[10, 0, 255, 255]), Truth::False);
    }

    #[test]
    fn masked_bits_are_known() {
        let bits = Bits::unknown(2).mask_xor(&[0xff, 0x0f], &[0, 0x30]);
        assert_eq!(bits.slice(1, 1).equals(&[0x35]), Truth::Unknown);
        assert_eq!(bits.slice(1, 1).equals(&[0x45]), Truth::False);
        assert_eq!(bits.swap(2).slice(0, 1).equals(&[0x45]), Truth::False);
    }

    #[test]
    fn join_keeps_what_both_know() {
        let joined = Bits::exact(&[1, 2]).join(&Bits::exact(&[1, 3]));
        assert_eq!(joined.equals(&[1, 2]), Truth::Unknown);
        assert_eq!(joined.slice(0, 1).bytes(), Some(&[1][..]));
        assert_eq!(joined.equals(&[1, 4]), Truth::False, "bit 2 is 0 in both");
    }
}
