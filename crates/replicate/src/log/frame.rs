//! How a record lies in a segment: its length, a checksum of that, the record, a checksum of it.
//! Decides what is a torn tail and what is damage.

use crate::codec;
use crate::record::Record;

/// In bytes, as it is encoded.
pub const MAX_RECORD: usize = 16 << 20;

const HEAD: usize = 8;
const CHECK: usize = 4;
/// A frame of that, in bytes.
pub(super) const MAX_FRAME: usize = HEAD + MAX_RECORD + CHECK;

/// A file that the machine could not finish may end in zeros. Fewer than a sector of them do not tell.
const SECTOR: u64 = 512;

/// A frame's bytes, and how many there are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Whole {
        record: Record,
        length: usize,
    },
    /// More bytes are needed than there are: this many at least.
    Short {
        needed: usize,
    },
    Damaged {
        what: String,
        end: Option<usize>,
    },
}

/// # Errors
/// The record's length in bytes if it is larger than [`MAX_RECORD`]; nothing was appended then.
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

/// Whether a damaged frame at `offset` is what a crash leaves of the last write: the file then ends in
/// zeros that begin within it. `zeros` is where those begin, `size` where the file ends.
pub(super) fn is_torn(offset: u64, end: Option<usize>, zeros: u64, size: u64) -> bool {
    zeros <= offset || (size - zeros >= SECTOR && zeros < end_of(offset, end))
}

/// Where a damaged frame ends, or at least its head.
pub(super) fn end_of(offset: u64, end: Option<usize>) -> u64 {
    offset + end.unwrap_or(HEAD) as u64
}
