//! BGP path attributes, as far as they choose a path and say its next hop: RFC 4271 section 4.3.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::cursor::{Cursor, RecordError};

const EXTENDED_LENGTH: u8 = 0x10;

const ORIGIN: u8 = 1;
const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const MP_REACH: u8 = 14;

/// A path that leads somewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) next_hop: IpAddr,
    /// The lower the better: ASes of the path, then origin.
    pub(super) rank: (u32, u8),
}

pub(super) struct Attributes<'a> {
    bytes: Cursor<'a>,
    /// Bytes of an AS number in a path.
    as_bytes: usize,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(bytes: Cursor<'a>, as_bytes: usize) -> Self {
        Self { bytes, as_bytes }
    }

    /// None when there is no next hop. That of `MP_REACH` is taken before the one of `NEXT_HOP`,
    /// which routes to IPv6 do not have and routes by RFC 8950 may have for old readers.
    pub(super) fn path(mut self) -> Result<Option<Path>, RecordError> {
        let (mut hop, mut reach) = (None, None);
        let mut rank = (0, u8::MAX);
        while self.bytes.remaining() > 0 {
            let flags = self.bytes.u8("flags of an attribute")?;
            let kind = self.bytes.u8("type of an attribute")?;
            let length = if flags & EXTENDED_LENGTH == 0 {
                usize::from(self.bytes.u8("length of an attribute")?)
            } else {
                usize::from(self.bytes.u16("length of an attribute")?)
            };
            let mut value = self.bytes.part(length, "attribute")?;
            match kind {
                ORIGIN => rank.1 = value.u8("origin")?,
                AS_PATH => rank.0 = path_length(value, self.as_bytes)?,
                NEXT_HOP => hop = Some(IpAddr::V4(Ipv4Addr::from(value.array::<4>("next hop")?))),
                MP_REACH => reach = Some(mp_reach(value)?),
                _ => {}
            }
        }
        let next_hop = reach.or(hop);
        Ok(next_hop.map(|next_hop| Path { next_hop, rank }))
    }
}

/// An `AS_SET` counts as one AS (RFC 4271, 9.1.2.2), confederations not at all (RFC 5065, 5.3).
fn path_length(mut path: Cursor<'_>, as_bytes: usize) -> Result<u32, RecordError> {
    let mut length = 0;
    while path.remaining() > 0 {
        let kind = path.u8("type of a path segment")?;
        let count = path.u8("length of a path segment")?;
        path.take(usize::from(count) * as_bytes, "path segment")?;
        length += match kind {
            1 => 1,
            2 => u32::from(count),
            3 | 4 => 0,
            _ => return Err(path.error(&format!("a path segment of type {kind}"))),
        };
    }
    Ok(length)
}

/// Dumps hold the next hop alone (RFC 6396, 4.3.4); some hold the whole attribute, which begins
/// with an address family, so with a zero byte.
fn mp_reach(mut value: Cursor<'_>) -> Result<IpAddr, RecordError> {
    let mut length = value.u8("length of a next hop")?;
    if length == 0 {
        value.take(2, "address family")?;
        length = value.u8("length of a next hop")?;
    }
    match length {
        4 => Ok(IpAddr::V4(Ipv4Addr::from(value.array::<4>("next hop")?))),
        // The second one of 32 bytes is the link-local address, which says nothing elsewhere.
        16 | 32 => Ok(IpAddr::V6(Ipv6Addr::from(value.array::<16>("next hop")?))),
        _ => Err(value.error(&format!("a next hop of {length} bytes"))),
    }
}
