//! pcapng: blocks in sections; of them only interfaces and packets are read, others are skipped.

use super::block::Record;
use super::{Fault, Layout, MAX_FRAME_LEN, Order, Step, TOO_LONG};

/// The type of a section header block, the same in either byte order.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const INTERFACE: u32 = 1;
/// What preceded the enhanced packet; old files have it.
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Options of an interface block: what its time stamps count, and seconds to add to them.
const TIMESTAMP_RESOLUTION: u16 = 9;
const TIMESTAMP_OFFSET: u16 = 14;

/// Maximum size of a block that is read as a whole: a frame, and as much again for its options.
const MAX_BLOCK_LEN: usize = 2 * MAX_FRAME_LEN as usize;
/// Maximum number of interfaces in a section: more would fill memory.
const MAX_INTERFACES: usize = 1 << 16;

const CONTRADICTS: Fault = "a packet block that contradicts itself";

/// The section that is being read.
#[derive(Debug)]
pub(super) struct Section {
    order: Order,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u32,
    snapshot: u32,
    clock: Clock,
}

/// How time stamps become nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Clock {
    resolution: Resolution,
    offset_ns: i128,
}

/// The resolution of a time stamp.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    Nanoseconds(u64),
    /// So many of them are a nanosecond.
    PerNanosecond(u64),
    /// A second halved so often.
    Halved(u32),
}

impl Section {
    /// Before the first section header, which a file starts with.
    pub(super) fn new() -> Self {
        Self {
            order: Order::Little,
            interfaces: Vec::new(),
        }
    }

    pub(super) fn first_link(&self) -> Option<(u32, u32)> {
        let first = self.interfaces.first()?;
        Some((first.link_type, first.snapshot))
    }

    /// Starts a section whose header has these bytes first.
    fn start(&mut self, bytes: &[u8; 28]) -> Result<Step, Fault> {
        self.order = match bytes[8..12] {
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            _ => return Err("a section of no known byte order"),
        };
        if self.order.u16_at(bytes, 12) != 1 {
            return Err("a section of a version that nobody has described");
        }
        self.interfaces.clear();
        let length = self.block_length(bytes)?;
        if length < bytes.len() {
            return Err("a section header that is too short");
        }
        Ok(Step::Skip(length))
    }

    #[inline]
    fn block_length(&self, bytes: &[u8]) -> Result<usize, Fault> {
        let length = self.order.u32_at(bytes, 4) as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return Err("a block of impossible length");
        }
        Ok(length)
    }

    /// The body of a block that has to be read.
    #[inline]
    fn body<'a>(&self, bytes: &'a [u8], length: usize) -> Result<&'a [u8], Fault> {
        let body = &bytes[8..length - 4];
        if self.order.u32_at(bytes, length - 4) as usize != length {
            return Err("a block whose two lengths differ");
        }
        Ok(body)
    }

    fn add_interface(&mut self, body: &[u8]) -> Result<(), Fault> {
        if body.len() < 8 {
            return Err("an interface block that is too short");
        }
        if self.interfaces.len() == MAX_INTERFACES {
            return Err("more interfaces than any machine has");
        }
        self.interfaces.push(Interface {
            link_type: self.order.u16_at(body, 0).into(),
            snapshot: self.order.u32_at(body, 4),
            clock: self.clock(&body[8..]),
        });
        Ok(())
    }

    /// Finds an interface's clock among its options; microseconds since the epoch when there is
    /// none.
    fn clock(&self, mut options: &[u8]) -> Clock {
        let mut clock = Clock {
            resolution: Resolution::Nanoseconds(1000),
            offset_ns: 0,
        };
        while options.len() >= 4 {
            let length = usize::from(self.order.u16_at(options, 2));
            let value = options.get(4..4 + length).unwrap_or(&[]);
            match (self.order.u16_at(options, 0), value) {
                (0, _) => break,
                (TIMESTAMP_RESOLUTION, [value]) => clock.resolution = Resolution::of(*value),
                (TIMESTAMP_OFFSET, [_, _, _, _, _, _, _, _]) => {
                    clock.offset_ns = i128::from(self.order.i64_at(value, 0)) * 1_000_000_000;
                }
                _ => {}
            }
            let next = 4 + length.next_multiple_of(4);
            options = options.get(next..).unwrap_or(&[]);
        }
        clock
    }

    /// An enhanced or an obsolete packet, which differ in how they number the interface.
    #[inline]
    fn timed(&self, body: &[u8], interface: usize) -> Result<Record, Fault> {
        if body.len() < 20 {
            return Err(CONTRADICTS);
        }
        let interface = self.interface(interface)?;
        let word = |at| self.order.u32_at(body, at);
        let units = u64::from(word(4)) << 32 | u64::from(word(8));
        Ok(Record {
            timestamp_ns: interface.clock.nanoseconds(units),
            offset: 8 + 20,
            length: within(word(12), &body[20..])?,
            original_length: word(16),
            link_type: interface.link_type,
        })
    }

    fn simple(&self, body: &[u8]) -> Result<Record, Fault> {
        if body.len() < 4 {
            return Err(CONTRADICTS);
        }
        let interface = self.interface(0)?;
        let original_length = self.order.u32_at(body, 0);
        let length = match interface.snapshot {
            0 => original_length,
            snapshot => original_length.min(snapshot),
        };
        Ok(Record {
            timestamp_ns: 0,
            offset: 8 + 4,
            length: within(length, &body[4..])?,
            original_length,
            link_type: interface.link_type,
        })
    }

    #[inline]
    fn interface(&self, index: usize) -> Result<&Interface, Fault> {
        let known = self.interfaces.get(index);
        known.ok_or("a packet of an interface that no block describes")
    }
}

impl Layout for Section {
    #[inline]
    fn step(&mut self, bytes: &[u8]) -> Result<Step, Fault> {
        if bytes.len() < 12 {
            return Ok(Step::Wait(12));
        }
        if bytes.starts_with(&SECTION) {
            return match bytes.first_chunk() {
                Some(start) => self.start(start),
                None => Ok(Step::Wait(28)),
            };
        }
        let length = self.block_length(bytes)?;
        let kind = self.order.u32_at(bytes, 0);
        if !matches!(
            kind,
            ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET | INTERFACE
        ) {
            return Ok(Step::Skip(length));
        }
        if length > MAX_BLOCK_LEN {
            return Err(TOO_LONG);
        }
        if bytes.len() < length {
            return Ok(Step::Wait(length));
        }
        let body = self.body(bytes, length)?;
        let record = match kind {
            ENHANCED_PACKET => self.timed(body, self.order.u32_at(body, 0) as usize)?,
            OBSOLETE_PACKET => self.timed(body, self.order.u16_at(body, 0).into())?,
            SIMPLE_PACKET => self.simple(body)?,
            _ => {
                self.add_interface(body)?;
                return Ok(Step::Skip(length));
            }
        };
        Ok(Step::Frame(record, length))
    }
}

/// A length that fits into what follows.
#[inline]
fn within(length: u32, bytes: &[u8]) -> Result<u32, Fault> {
    if length > MAX_FRAME_LEN {
        return Err(TOO_LONG);
    }
    if length as usize > bytes.len() {
        return Err(CONTRADICTS);
    }
    Ok(length)
}

impl Clock {
    #[inline]
    fn nanoseconds(self, units: u64) -> i64 {
        let units_ns = match self.resolution {
            Resolution::Nanoseconds(each) => i128::from(units) * i128::from(each),
            Resolution::PerNanosecond(count) => i128::from(units / count),
            Resolution::Halved(times) => (i128::from(units) * 1_000_000_000) >> times,
        };
        let time = units_ns + self.offset_ns;
        let limit = if time < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(time).unwrap_or(limit)
    }
}

impl Resolution {
    /// The option's value: a power of ten, or of two when the highest bit is set.
    fn of(value: u8) -> Self {
        let power = u32::from(value & 0x7f);
        if value & 0x80 != 0 {
            return Self::Halved(power);
        }
        match power.checked_sub(9) {
            None => Self::Nanoseconds(10_u64.pow(9 - power)),
            Some(finer) => Self::PerNanosecond(10_u64.checked_pow(finer).unwrap_or(u64::MAX)),
        }
    }
}
