//! Long headers (RFC 9000, 17.2): what a packet is, and where it ends in its datagram.

use super::super::cursor::Cursor;
use super::version;

/// The longest connection ID of these versions.
const MAX_ID_LEN: u8 = 20;
const LONG: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Initial,
    /// 0-RTT or Handshake.
    Other,
}

/// A packet with a length, and what follows it in the datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongHeader<'a> {
    pub(super) version: u32,
    pub(super) kind: Kind,
    pub(super) destination: &'a [u8],
    /// Where the packet number is.
    pub(super) number_at: usize,
    /// The packet; `None` if it does not end in these bytes.
    pub(super) bytes: Option<&'a [u8]>,
    pub(super) rest: &'a [u8],
}

impl<'a> LongHeader<'a> {
    /// Reads the next packet of a datagram. A Retry, a version negotiation and a packet of another
    /// version have no length, so nothing is read there or behind.
    pub(super) fn read(datagram: &'a [u8]) -> Option<Self> {
        let mut rest = Cursor(datagram);
        let first = rest.u8()?;
        let version = rest.u32()?;
        let protection = version::protections(version).first()?;
        let destination = connection_id(&mut rest)?;
        let _source = connection_id(&mut rest)?;
        // The other types follow Initial: 0-RTT, Handshake, Retry.
        let kind = match (first >> 4).wrapping_sub(protection.initial_type) & 3 {
            0 => Kind::Initial,
            1 | 2 => Kind::Other,
            _ => return None,
        };
        if first & LONG == 0 {
            return None;
        }
        if kind == Kind::Initial {
            let token = usize::try_from(rest.varint()?).ok()?;
            rest.take(token)?;
        }
        let length = usize::try_from(rest.varint()?).ok()?;
        let number_at = datagram.len() - rest.0.len();
        let end = number_at.checked_add(length)?;
        Some(Self {
            version,
            kind,
            destination,
            number_at,
            bytes: datagram.get(..end),
            rest: datagram.get(end..).unwrap_or(&[]),
        })
    }
}

fn connection_id<'a>(rest: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let length = rest.u8().filter(|length| *length <= MAX_ID_LEN)?;
    rest.take(length.into())
}
