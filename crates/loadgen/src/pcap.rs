//! Reading captures: the classic pcap file, either byte order, microseconds or nanoseconds.

use std::fs;
use std::path::Path;

use crate::Error;

/// A file header and a record header.
const FILE: usize = 24;
const RECORD: usize = 16;
const ETHERNET: u32 = 1;

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) time_ns: u64,
    /// What was captured.
    pub(crate) bytes: Vec<u8>,
    /// Bytes the frame had on the wire.
    pub(crate) original_len: u32,
}

/// Every frame of an Ethernet capture. A file cut short ends with its last whole frame.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>, Error> {
    let name = path.display();
    let bytes = fs::read(path).map_err(Error::io(format!("reading {name}")))?;
    parse(&bytes).map_err(|what| Error::Load(format!("{name}: {what}")))
}

fn parse(bytes: &[u8]) -> Result<Vec<Record>, String> {
    let magic = bytes.get(..4).ok_or("not a capture")?;
    let (little, nanoseconds) = match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => (true, false),
        [0x4d, 0x3c, 0xb2, 0xa1] => (true, true),
        [0xa1, 0xb2, 0xc3, 0xd4] => (false, false),
        [0xa1, 0xb2, 0x3c, 0x4d] => (false, true),
        [0x0a, 0x0d, 0x0d, 0x0a] => {
            return Err("a pcapng file; convert it with `editcap -F pcap`".into());
        }
        _ => return Err("not a capture".into()),
    };
    let word = |at: usize| {
        let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    };
    // The upper bits of the link type say how the frame check sequence was captured.
    match word(20).map(|link| link & 0xffff) {
        Some(ETHERNET) => {}
        Some(other) => return Err(format!("link type {other}, only Ethernet (1) is replayed")),
        None => return Err("not a capture".into()),
    }
    let mut records = Vec::new();
    let mut at = FILE;
    let record = |at| {
        let (seconds, fraction) = (word(at)?, word(at + 4)?);
        let (captured, original_len) = (word(at + 8)?, word(at + 12)?);
        let start = at + RECORD;
        let bytes = bytes.get(start..start + captured as usize)?.to_vec();
        let unit = if nanoseconds { 1 } else { 1000 };
        Some(Record {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit,
            bytes,
            original_len,
        })
    };
    while let Some(next) = record(at) {
        at += RECORD + next.bytes.len();
        records.push(next);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(little: bool, magic: u32, link: u32, frames: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let word = |value: u32| {
            if little {
                value.to_le_bytes()
            } else {
                value.to_be_bytes()
            }
        };
        let mut bytes: Vec<u8> = [magic, 0x0004_0002, 0, 0, 65_535, link]
            .into_iter()
            .flat_map(word)
            .collect();
        for (seconds, fraction, frame) in frames {
            let len = u32::try_from(frame.len()).unwrap();
            bytes.extend(
                [*seconds, *fraction, len, len + 1]
                    .into_iter()
                    .flat_map(word),
            );
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    #[test]
    fn all_four_variants_say_the_same() {
        for little in [true, false] {
            for (magic, fraction) in [(0xa1b2_c3d4, 5), (0xa1b2_3c4d, 5000)] {
                let bytes = file(little, magic, 1, &[(2, fraction, b"one"), (3, 0, b"")]);
                let records = parse(&bytes).unwrap();
                assert_eq!(records[0].time_ns, 2_000_005_000);
                assert_eq!(
                    (&records[0].bytes[..], records[0].original_len),
                    (&b"one"[..], 4)
                );
                assert_eq!((records[1].time_ns, records.len()), (3_000_000_000, 2));
            }
        }
    }

    #[test]
    fn a_file_cut_short_keeps_its_whole_frames() {
        let bytes = file(true, 0xa1b2_c3d4, 1, &[(1, 0, b"first"), (1, 1, b"second")]);
        for cut in FILE + RECORD + 5..bytes.len() {
            assert_eq!(parse(&bytes[..cut]).unwrap().len(), 1);
        }
    }

    #[test]
    fn other_files_are_refused_in_words() {
        let cooked = file(true, 0xa1b2_c3d4, 113, &[]);
        assert!(parse(&cooked).unwrap_err().contains("link type 113"));
        let next_generation = [0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0];
        assert!(parse(&next_generation).unwrap_err().contains("editcap"));
        assert!(parse(b"PK").is_err());
        assert!(parse(&[0xd4, 0xc3, 0xb2, 0xa1]).is_err());
    }
}
