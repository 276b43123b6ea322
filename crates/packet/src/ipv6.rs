//! IPv6 and its extension headers (RFC 8200).

use std::net::Ipv6Addr;

use crate::ParseError;
use crate::bytes::{array, put, slice, slice_mut, u8_at, u16_at, u32_at};
use crate::parse::Fragment;
use crate::protocol;

/// Bytes of the fixed header.
pub const HEADER: usize = 40;
/// Extension headers walked before a packet is given up.
pub const MAX_EXTENSIONS: u8 = 6;

/// A packet; bytes after its payload length are Ethernet padding and not part of it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

/// The upper layer at the end of the chain of extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// The transport's protocol number; another extension header's after [`MAX_EXTENSIONS`].
    pub protocol: u8,
    /// Where it starts, from the first byte of the fixed header.
    pub offset: usize,
    /// Extension headers passed.
    pub extensions: u8,
    pub fragment: Fragment,
}

impl<T: AsRef<[u8]>> Packet<T> {
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        let length = buffer.as_ref().len();
        if length < HEADER {
            return Err(ParseError::TruncatedIp);
        }
        let packet = Self(buffer);
        if u8_at(packet.0.as_ref(), 0) >> 4 != 6 {
            return Err(ParseError::BadVersion);
        }
        if packet.total_len() > length {
            return Err(ParseError::BadTotalLength);
        }
        Ok(packet)
    }

    /// DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        (u16_at(self.0.as_ref(), 0) >> 4).to_be_bytes()[1]
    }

    pub fn flow_label(&self) -> u32 {
        u32_at(self.0.as_ref(), 0) & 0x000f_ffff
    }

    /// Bytes after the fixed header.
    pub fn payload_len(&self) -> usize {
        u16_at(self.0.as_ref(), 4).into()
    }

    /// Bytes of the fixed header and the payload.
    pub fn total_len(&self) -> usize {
        HEADER + self.payload_len()
    }

    /// Of the first extension header, or of the transport.
    pub fn next_header(&self) -> u8 {
        u8_at(self.0.as_ref(), 6)
    }

    pub fn hop_limit(&self) -> u8 {
        u8_at(self.0.as_ref(), 7)
    }

    pub fn source(&self) -> Ipv6Addr {
        array::<16>(self.0.as_ref(), 8).into()
    }

    pub fn destination(&self) -> Ipv6Addr {
        array::<16>(self.0.as_ref(), 24).into()
    }

    pub fn payload(&self) -> &[u8] {
        slice(self.0.as_ref(), HEADER, self.total_len())
    }

    /// Walks the extension headers, up to a later fragment's data or [`MAX_EXTENSIONS`].
    pub fn upper(&self) -> Result<UpperLayer, ParseError> {
        let mut upper = UpperLayer {
            protocol: self.next_header(),
            offset: HEADER,
            extensions: 0,
            fragment: Fragment::None,
        };
        while upper.extensions < MAX_EXTENSIONS
            && is_extension(upper.protocol)
            && upper.fragment != Fragment::Later
        {
            self.pass_extension(&mut upper)?;
        }
        Ok(upper)
    }

    fn pass_extension(&self, upper: &mut UpperLayer) -> Result<(), ParseError> {
        let header = slice(self.0.as_ref(), upper.offset, self.total_len());
        if header.len() < 8 {
            return Err(ParseError::TruncatedExtension);
        }
        let length = usize::from(u8_at(header, 1));
        let size = match upper.protocol {
            protocol::FRAGMENT => 8,
            protocol::AUTHENTICATION => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        if size > header.len() {
            return Err(ParseError::TruncatedExtension);
        }
        if upper.protocol == protocol::FRAGMENT {
            let field = u16_at(header, 2);
            if field & 0xfff8 != 0 {
                upper.fragment = Fragment::Later;
            } else if field & 1 != 0 {
                upper.fragment = Fragment::First;
            }
        }
        upper.protocol = u8_at(header, 0);
        upper.offset += size;
        upper.extensions += 1;
        Ok(())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        put(self.0.as_mut(), 7, &[hop_limit]);
    }

    pub fn set_source(&mut self, address: Ipv6Addr) {
        put(self.0.as_mut(), 8, &address.octets());
    }

    pub fn set_destination(&mut self, address: Ipv6Addr) {
        put(self.0.as_mut(), 24, &address.octets());
    }

    pub fn payload_mut(&mut self) -> &mut [u8] {
        let to = self.total_len();
        slice_mut(self.0.as_mut(), HEADER, to)
    }
}

/// Whether a next-header value is an extension header that is walked.
pub fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AUTHENTICATION
            | protocol::DESTINATION_OPTIONS
    )
}
