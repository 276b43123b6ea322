//! Classic pcap: one header, then a record header before each frame.

use std::io::Read;

use super::{Captured, Error, Input, Order};

/// What the magic number says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    order: Order,
    /// Nanoseconds in one unit of a record's fraction.
    unit: u64,
}

#[derive(Debug)]
pub(super) struct Header {
    kind: Kind,
    pub(super) snapshot: u32,
    pub(super) link_type: u32,
}

impl Kind {
    pub(super) fn of(magic: [u8; 4]) -> Option<Self> {
        let (order, unit) = match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1000),
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1),
            _ => return None,
        };
        Some(Self { order, unit })
    }
}

impl Header {
    pub(super) fn read<R: Read>(kind: Kind, input: &mut Input<R>) -> Result<Self, Error> {
        let rest: [u8; 20] = input.array()?;
        Ok(Self {
            kind,
            snapshot: kind.order.u32_at(&rest, 12),
            // The upper bits tell of frame check sequences, not of the link.
            link_type: kind.order.u32_at(&rest, 16) & 0x0fff_ffff,
        })
    }

    pub(super) fn next<R: Read>(&self, input: &mut Input<R>) -> Result<Option<Captured>, Error> {
        let Some(record) = input.array_or_end::<16>()? else {
            return Ok(None);
        };
        let word = |index: usize| self.kind.order.u32_at(&record, index * 4);
        let (seconds, fraction) = (u64::from(word(0)), u64::from(word(1)));
        let length = usize::try_from(word(2)).unwrap_or(usize::MAX);
        Ok(Some(Captured {
            timestamp_ns: seconds * 1_000_000_000 + fraction * self.kind.unit,
            original_length: word(3),
            link_type: self.link_type,
            frame: input.vec(length)?,
        }))
    }
}
