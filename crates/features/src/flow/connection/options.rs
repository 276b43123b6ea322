//! Parses the options of a TCP header.

use crate::dissect::Packet;

use super::segment::Timestamps;

const MIN_HEADER: usize = 20;

/// An option by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpOption {
    /// The end of the options, and whether all bytes behind it are zero.
    End {
        padding: usize,
        is_zero: bool,
    },
    NoOperation,
    SegmentSize(u16),
    WindowScale(u8),
    SackPermitted,
    Sack,
    Timestamps(Timestamps),
    Unknown(u8),
    /// A length that is invalid for the kind or exceeds the header. The options behind it cannot be read.
    Malformed,
}

/// The captured bytes of a packet's options.
pub(super) fn bytes<'a>(packet: &Packet<'a>) -> &'a [u8] {
    let start = packet.ip_header as usize;
    let end = start + packet.l4_header as usize;
    let end = end.min(packet.network.len());
    packet.network.get(start + MIN_HEADER..end).unwrap_or(&[])
}

/// The options in these bytes.
pub(super) fn all(mut bytes: &[u8]) -> impl Iterator<Item = TcpOption> {
    std::iter::from_fn(move || {
        let (option, rest) = first(bytes)?;
        bytes = rest;
        Some(option)
    })
}

/// The first option, and the bytes behind it.
pub(super) fn first(bytes: &[u8]) -> Option<(TcpOption, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    match kind {
        0 => {
            let end = TcpOption::End {
                padding: rest.len(),
                is_zero: rest.iter().all(|byte| *byte == 0),
            };
            Some((end, &[]))
        }
        1 => Some((TcpOption::NoOperation, rest)),
        _ => {
            let length = rest.first().map_or(0, |length| usize::from(*length));
            let option = bytes.get(2..length).and_then(|body| read(*kind, body));
            let option = option.unwrap_or(TcpOption::Malformed);
            let rest = match option {
                TcpOption::Malformed => &[],
                _ => &bytes[length..],
            };
            Some((option, rest))
        }
    }
}

fn read(kind: u8, body: &[u8]) -> Option<TcpOption> {
    let option = match (kind, body) {
        (2, [high, low]) => TcpOption::SegmentSize(u16::from_be_bytes([*high, *low])),
        (3, [shift]) => TcpOption::WindowScale(*shift),
        (4, []) => TcpOption::SackPermitted,
        (5, blocks) if matches!(blocks.len(), 8..=32) => TcpOption::Sack,
        (8, [a, b, c, d, e, f, g, h]) => TcpOption::Timestamps(Timestamps {
            value: u32::from_be_bytes([*a, *b, *c, *d]),
            echo: u32::from_be_bytes([*e, *f, *g, *h]),
        }),
        (2..=5 | 8, _) => return None,
        _ => TcpOption::Unknown(kind),
    };
    Some(option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_syn() {
        let bytes = [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8, 1, 3, 3, 7, 30, 3, 0, 0, 0, 0,
        ];
        let expected = [
            TcpOption::SegmentSize(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps(Timestamps { value: 9, echo: 8 }),
            TcpOption::NoOperation,
            TcpOption::WindowScale(7),
            TcpOption::Unknown(30),
            TcpOption::End {
                padding: 2,
                is_zero: true,
            },
        ];
        assert!(all(&bytes).eq(expected));
    }

    #[test]
    fn nothing_is_read_behind_a_length_that_does_not_fit() {
        for bytes in [
            &[3, 2, 1, 1][..],
            &[3],
            &[30, 0, 1, 1],
            &[30, 1, 1],
            &[8, 10, 0, 0],
            &[5, 9, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(all(bytes).eq([TcpOption::Malformed]), "{bytes:?}");
        }
    }
}
