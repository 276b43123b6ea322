//! The versions whose Initial packets are read, and how each protects them.

use super::super::cursor::Cursor;

/// The form bit of a long header, and the bit that is 1 in each packet of versions 1 and 2 unless the
/// peer has allowed otherwise (RFC 9287).
const LONG: u8 = 0x80;
const FIXED: u8 = 0x40;
/// The shortest datagram with a client's Initial packet, and its shortest Destination Connection ID.
const MIN_DATAGRAM: usize = 1200;
const MIN_FIRST_ID: u8 = 8;

/// How a version protects Initial packets, and which number their type has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Protection {
    pub(super) salt: [u8; 20],
    pub(super) key: &'static [u8],
    pub(super) iv: &'static [u8],
    pub(super) header: &'static [u8],
    /// Version 2 counts the types of long headers from another start (RFC 9369, 3.2).
    pub(super) initial_type: u8,
}

impl Protection {
    const fn with_salt(salt: [u8; 20]) -> Self {
        Self {
            salt,
            key: b"quic key",
            iv: b"quic iv",
            header: b"quic hp",
            initial_type: 0,
        }
    }
}

/// RFC 9001, 5.2; drafts 33 and 34 already had it.
const V1: Protection = Protection::with_salt([
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
    0xcc, 0xbb, 0x7f, 0x0a,
]);

/// RFC 9369, 3.3.
const V2: Protection = Protection {
    salt: [
        0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d,
        0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
    ],
    key: b"quicv2 key",
    iv: b"quicv2 iv",
    header: b"quicv2 hp",
    initial_type: 1,
};

const DRAFT_29: Protection = Protection::with_salt([
    0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61, 0x11, 0xe0,
    0x43, 0x90, 0xa8, 0x99,
]);

const DRAFT_23: Protection = Protection::with_salt([
    0xc3, 0xee, 0xf7, 0x12, 0xc7, 0x2e, 0xbb, 0x5a, 0x11, 0xa7, 0xd2, 0x43, 0x2b, 0xb4, 0x63, 0x65,
    0xbe, 0xf9, 0xf5, 0x02,
]);

const DRAFT_22: Protection = Protection::with_salt([
    0x7f, 0xbc, 0xdb, 0x0e, 0x7c, 0x66, 0xbb, 0xe9, 0x19, 0x3a, 0x96, 0xcd, 0x21, 0x51, 0x9e, 0xbd,
    0x7a, 0x02, 0x64, 0x4a,
]);

/// The protections to try for a version; none for one that is not read, such as those of Google
/// before the standard. `0xface_b...` are those of Facebook's mvfst. What a client does in a version that is reserved to exercise negotiation
/// (RFC 9000, 15) is its own affair: it may use those of the version that it speaks.
pub(super) fn protections(version: u32) -> &'static [Protection] {
    match version {
        1 | 0xff00_0021 | 0xff00_0022 => &[V1],
        0x6b33_43cf => &[V2],
        0xff00_001d..=0xff00_0020 => &[DRAFT_29],
        0xff00_0017..=0xff00_001c | 0xface_b002 | 0xface_b00e => &[DRAFT_23],
        0xff00_0016 | 0xface_b001 => &[DRAFT_22],
        _ if is_reserved(version) => &[V1, DRAFT_29],
        _ => &[],
    }
}

fn is_reserved(version: u32) -> bool {
    version & 0x0f0f_0f0f == 0x0a0a_0a0a
}

/// The version of a datagram that starts with a long header of a version that is read. A reserved
/// version says less than others, so there the datagram must be one that a client starts with.
pub(super) fn of(datagram: &[u8]) -> Option<u32> {
    let mut rest = Cursor(datagram);
    let first = rest.u8()?;
    if first & LONG == 0 {
        return None;
    }
    let version = rest.u32()?;
    let id_length = rest.u8()?;
    let is_fixed = first & FIXED != 0;
    let fits = if is_reserved(version) {
        is_fixed && id_length >= MIN_FIRST_ID && datagram.len() >= MIN_DATAGRAM
    } else {
        is_fixed || id_length >= MIN_FIRST_ID
    };
    (fits && !protections(version).is_empty()).then_some(version)
}
