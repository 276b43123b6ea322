//! The frame of a record in a segment: its length, a checksum of the length, the record, a checksum
//! of the record. Distinguishes a torn tail from damage.

use crate::codec;
use crate::record::Record;

/// The largest encoded record, in bytes.
pub const MAX_RECORD: usize = 16 << 20;

const HEAD: usize = 8;
const CHECK: usize = 4;
/// The largest frame, in bytes.
pub(super) const MAX_FRAME: usize = HEAD + MAX_RECORD + CHECK;

/// A file whose write was interrupted may end in zeros. Fewer zeros than a sector prove nothing.
const SECTOR: u64 = 512;

/// The result of decoding a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Whole {
        record: Record,
        length: usize,
    },
    /// The frame is incomplete. It needs at least this many bytes.
    Short {
        needed: usize,
    },
    Damaged {
        what: String,
        end: Option<usize>,
    },
}

/// # Errors
/// Returns the record's length in bytes if it is larger than [`MAX_RECORD`]. Nothing is appended
/// then.
pub(super) fn put(record: &Record, to: &mut Vec<u8>) -> Result<(), usize> {
    let start = to.len();
    to.extend([0; HEAD]);
    codec::encode(record, to);
    let body = to.len() - start - HEAD;
    if body > MAX_RECORD {
        to.truncate(start);
        return Err(body);
    }
    let length = u32::try_from(body).unwrap_or(u32::MAX).to_le_bytes();
    let check = crc32c::crc32c(&to[start + HEAD..]).to_le_bytes();
    to[start..start + 4].copy_from_slice(&length);
    to[start + 4..start + HEAD].copy_from_slice(&crc32c::crc32c(&length).to_le_bytes());
    to.extend(check);
    Ok(())
}

pub(super) fn get(bytes: &[u8]) -> Frame {
    let short = |needed| Frame::Short { needed };
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return short(HEAD);
    };
    let Some((check, rest)) = rest.split_first_chunk::<4>() else {
        return short(HEAD);
    };
    let body = u32::from_le_bytes(*length) as usize;
    if crc32c::crc32c(length) != u32::from_le_bytes(*check) || body > MAX_RECORD {
        return Frame::Damaged {
            what: "no length of a record".to_owned(),
            end: None,
        };
    }
    let whole = HEAD + body + CHECK;
    let damaged = |what: String| Frame::Damaged {
        what,
        end: Some(whole),
    };
    let Some((body, rest)) = rest.split_at_checked(body) else {
        return short(whole);
    };
    let Some((check, _)) = rest.split_first_chunk::<4>() else {
        return short(whole);
    };
    if crc32c::crc32c(body) != u32::from_le_bytes(*check) {
        return damaged("the checksum is wrong".to_owned());
    }
    match codec::decode(body) {
        Ok(record) => Frame::Whole {
            record,
            length: whole,
        },
        Err(malformed) => damaged(malformed.to_string()),
    }
}

/// Whether a damaged frame at `offset` is the remainder of a write interrupted by a crash: the file
/// then ends in zeros that begin within the frame. The zeros begin at `zeros`, and the file ends at
/// `size`.
pub(super) fn is_torn(offset: u64, end: Option<usize>, zeros: u64, size: u64) -> bool {
    zeros <= offset || (size - zeros >= SECTOR && zeros < end_of(offset, end))
}

/// The end of a damaged frame, or at least of its head.
pub(super) fn end_of(offset: u64, end: Option<usize>) -> u64 {
    offset + end.unwrap_or(HEAD) as u64
}
