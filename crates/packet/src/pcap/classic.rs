//! Classic pcap and its variants: one header, then a record header before each frame.

use super::block::Record;
use super::{Fault, Layout, MAX_FRAME_LEN, Order, Step, TOO_LONG};

/// What the magic number says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    order: Order,
    /// Nanoseconds in one unit of a record's fraction.
    unit: i64,
    /// Bytes of the file's header.
    pub(super) header: usize,
    /// Bytes of a record's header.
    record: usize,
}

#[derive(Debug)]
pub(super) struct Header {
    kind: Kind,
    lengths: Lengths,
    pub(super) snapshot: u32,
    pub(super) link_type: u32,
}

/// Which of a record's two lengths comes first.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    Captured,
    Original,
    /// The smaller is what was captured: programs differed while they had the same version.
    Either,
}

impl Kind {
    pub(super) fn of(magic: [u8; 4]) -> Option<Self> {
        Self::in_order(Order::Big, u32::from_be_bytes(magic))
            .or_else(|| Self::in_order(Order::Little, u32::from_le_bytes(magic)))
    }

    fn in_order(order: Order, magic: u32) -> Option<Self> {
        let (unit, header, record) = match magic {
            0xa1b2_c3d4 => (1000, 24, 16),
            0xa1b2_3c4d => (1, 24, 16),
            // Alexey Kuznetzov's libpcap: each record also names its interface and protocol.
            0xa1b2_cd34 => (1000, 24, 24),
            // Ixia's lcap, by software and by hardware: the file's header also has its length.
            0x1c00_01ab => (1000, 28, 16),
            0x1c00_01ac => (1, 28, 16),
            _ => return None,
        };
        Some(Self {
            order,
            unit,
            header,
            record,
        })
    }
}

impl Header {
    /// Understands a header that is whole.
    pub(super) fn new(kind: Kind, header: &[u8]) -> Self {
        let version = |at| kind.order.u16_at(header, at);
        Self {
            kind,
            lengths: Lengths::of(version(4), version(6)),
            snapshot: kind.order.u32_at(header, 16),
            // The upper bits tell of frame check sequences, not of the link.
            link_type: kind.order.u32_at(header, 20) & 0xffff,
        }
    }
}

impl Layout for Header {
    #[inline]
    fn step(&mut self, bytes: &[u8]) -> Result<Step, Fault> {
        let header = self.kind.record;
        if bytes.len() < header {
            return Ok(Step::Wait(header));
        }
        let word = |index: usize| self.kind.order.u32_at(bytes, index * 4);
        let (length, original_length) = self.lengths.captured_and_original(word(2), word(3));
        if length > MAX_FRAME_LEN {
            return Err(TOO_LONG);
        }
        let size = header + length as usize;
        if bytes.len() < size {
            return Ok(Step::Wait(size));
        }
        let (seconds, fraction) = (i64::from(word(0)), i64::from(word(1)));
        let record = Record {
            timestamp_ns: seconds * 1_000_000_000 + fraction * self.kind.unit,
            offset: header,
            length,
            original_length,
            link_type: self.link_type,
        };
        Ok(Step::Frame(record, size))
    }
}

impl Lengths {
    /// Version 2.3 exchanged the two, not in every program; DG/UX numbers its versions otherwise.
    fn of(major: u16, minor: u16) -> Self {
        match (major, minor) {
            (2, ..3) | (543, _) => Self::Original,
            (2, 3) => Self::Either,
            _ => Self::Captured,
        }
    }

    /// A record's captured and original length.
    #[inline]
    fn captured_and_original(self, first: u32, second: u32) -> (u32, u32) {
        match self {
            Self::Captured => (first, second),
            Self::Original => (second, first),
            Self::Either => (first.min(second), first.max(second)),
        }
    }
}
