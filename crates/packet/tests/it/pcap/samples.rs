//! Captures made byte by byte.

use packet::pcap::{ETHERNET, OwnedFrame, Writer};

pub(crate) fn captured(timestamp_ns: i64, original_length: u32, frame: &[u8]) -> OwnedFrame {
    OwnedFrame {
        timestamp_ns,
        original_length,
        link_type: ETHERNET,
        frame: frame.to_vec(),
    }
}

/// Frames written as a nanosecond capture.
pub(crate) fn written(frames: &[OwnedFrame]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for frame in frames {
        writer
            .write_cut(frame.timestamp_ns, frame.original_length, &frame.frame)
            .unwrap();
    }
    writer.finish().unwrap()
}

/// Three frames, the second cut by the capture.
pub(crate) fn three() -> [OwnedFrame; 3] {
    [
        captured(1_700_000_000_123_456_789, 4, b"abcd"),
        captured(1_700_000_001_000_000_000, 1500, b"efghi"),
        captured(1_700_000_001_000_001_000, 0, b""),
    ]
}

/// How numbers are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Big,
    Little,
}

pub(crate) const ORDERS: [Order; 2] = [Order::Big, Order::Little];

impl Order {
    pub(crate) fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Big => value.to_be_bytes(),
            Self::Little => value.to_le_bytes(),
        }
    }

    pub(crate) fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Big => value.to_be_bytes(),
            Self::Little => value.to_le_bytes(),
        }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Big => value.to_be_bytes(),
            Self::Little => value.to_le_bytes(),
        }
    }

    pub(crate) fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }

    /// A classic file's header of this magic number and version.
    pub(crate) fn classic(self, magic: u32, (major, minor): (u16, u16)) -> Vec<u8> {
        let version = [self.u16(major), self.u16(minor)].concat();
        let rest = self.words(&[0, 0, 65535, ETHERNET]);
        [&self.u32(magic)[..], &version, &rest].concat()
    }

    /// A pcapng block, its body padded.
    pub(crate) fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = u32::try_from(body.len() + padding.len() + 12).unwrap();
        let length = self.u32(length);
        [&self.u32(kind)[..], &length, body, &padding, &length].concat()
    }

    pub(crate) fn section(self) -> Vec<u8> {
        let magic = self.u32(0x1a2b_3c4d);
        let version = [self.u16(1), self.u16(0)].concat();
        self.block(0x0a0d_0d0a, &[&magic[..], &version, &[0xff; 8]].concat())
    }

    /// An Ethernet interface.
    pub(crate) fn interface(self, snapshot: u32, options: &[Vec<u8>]) -> Vec<u8> {
        let link = [self.u16(1), self.u16(0)].concat();
        let start = [&link[..], &self.u32(snapshot)].concat();
        self.block(1, &[start, options.concat()].concat())
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap();
        let mut option = [self.u16(code), self.u16(length)].concat();
        option.extend_from_slice(value);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    pub(crate) fn name(self) -> Vec<u8> {
        self.option(2, b"eth")
    }

    pub(crate) fn resolution(self, value: u8) -> Vec<u8> {
        self.option(9, &[value])
    }

    pub(crate) fn offset(self, seconds: i64) -> Vec<u8> {
        self.option(14, &self.u64(seconds.cast_unsigned()))
    }

    pub(crate) fn options_end(self) -> Vec<u8> {
        self.option(0, &[])
    }

    pub(crate) fn enhanced(
        self,
        interface: u32,
        units: u64,
        original: u32,
        frame: &[u8],
    ) -> Vec<u8> {
        let body = [
            self.u32(interface).to_vec(),
            self.stamped(units, original, frame),
        ];
        self.block(6, &body.concat())
    }

    pub(crate) fn obsolete(
        self,
        interface: u16,
        units: u64,
        original: u32,
        frame: &[u8],
    ) -> Vec<u8> {
        // After the interface, how many packets were lost.
        let interface = [self.u16(interface), self.u16(3)].concat();
        let body = [interface, self.stamped(units, original, frame)];
        self.block(2, &body.concat())
    }

    pub(crate) fn simple(self, original: u32, frame: &[u8]) -> Vec<u8> {
        self.block(3, &[&self.u32(original)[..], frame].concat())
    }

    fn stamped(self, units: u64, original: u32, frame: &[u8]) -> Vec<u8> {
        let high = u32::try_from(units >> 32).unwrap();
        let low = u32::try_from(units & 0xffff_ffff).unwrap();
        let length = u32::try_from(frame.len()).unwrap();
        let mut body = self.words(&[high, low, length, original]);
        body.extend_from_slice(frame);
        body
    }
}
