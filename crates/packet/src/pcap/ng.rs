//! pcapng: blocks in sections; of them only interfaces and packets are read, others are skipped.

use std::io::Read;

use super::{Captured, Error, Input, Order};

/// The type of a section header block, the same in either byte order.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The option of an interface block that says what its time stamps count.
const TIMESTAMP_RESOLUTION: u16 = 9;

#[derive(Debug)]
pub(super) struct Section {
    order: Order,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u32,
    snapshot: u32,
    resolution: Resolution,
}

/// Time stamp units in a second.
#[derive(Clone, Copy, Debug)]
struct Resolution(u64);

impl Section {
    /// Reads a section header whose type has been read.
    pub(super) fn read<R: Read>(input: &mut Input<R>) -> Result<Self, Error> {
        let start: [u8; 8] = input.array()?;
        let order = match start[4..] {
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            _ => return Err(input.broken("a section of no known byte order")),
        };
        let length = block_length(order.u32_at(&start, 0), 16, input)?;
        input.vec(length - 12)?;
        Ok(Self {
            order,
            interfaces: Vec::new(),
        })
    }

    pub(super) fn first_link(&self) -> Option<(u32, u32)> {
        self.interfaces
            .first()
            .map(|interface| (interface.link_type, interface.snapshot))
    }

    pub(super) fn next<R: Read>(
        &mut self,
        input: &mut Input<R>,
    ) -> Result<Option<Captured>, Error> {
        loop {
            let Some(kind) = input.array_or_end::<4>()? else {
                return Ok(None);
            };
            if kind == SECTION {
                *self = Self::read(input)?;
                continue;
            }
            let length = self.order.u32(input.array()?);
            let length = block_length(length, 12, input)?;
            // The body, and the length once more, which is not needed to go forwards.
            let mut body = input.vec(length - 8)?;
            body.truncate(length - 12);
            let captured = match self.order.u32(kind) {
                INTERFACE => {
                    let interface = self
                        .interface(&body)
                        .ok_or_else(|| input.broken("an interface block that is too short"))?;
                    self.interfaces.push(interface);
                    continue;
                }
                ENHANCED_PACKET => self.enhanced(body),
                SIMPLE_PACKET => self.simple(body),
                _ => continue,
            };
            return captured
                .map(Some)
                .ok_or_else(|| input.broken("a packet block that contradicts itself"));
        }
    }

    fn interface(&self, body: &[u8]) -> Option<Interface> {
        (body.len() >= 8).then(|| Interface {
            link_type: self.order.u16_at(body, 0).into(),
            snapshot: self.order.u32_at(body, 4),
            resolution: self.resolution(&body[8..]),
        })
    }

    /// Finds the resolution among an interface's options; microseconds when there is none.
    fn resolution(&self, mut options: &[u8]) -> Resolution {
        while options.len() >= 4 {
            let code = self.order.u16_at(options, 0);
            let length = usize::from(self.order.u16_at(options, 2));
            if code == TIMESTAMP_RESOLUTION && length == 1 && options.len() > 4 {
                return Resolution::of(options[4]);
            }
            let next = 4 + length.next_multiple_of(4);
            options = options.get(next..).unwrap_or(&[]);
        }
        Resolution(1_000_000)
    }

    fn enhanced(&self, body: Vec<u8>) -> Option<Captured> {
        let interface = usize::try_from(self.order.u32_at(&body, 0)).ok()?;
        let interface = self.interfaces.get(interface)?;
        let high = u64::from(self.order.u32_at(&body, 4));
        let low = u64::from(self.order.u32_at(&body, 8));
        let length = usize::try_from(self.order.u32_at(&body, 12)).ok()?;
        Some(Captured {
            timestamp_ns: interface.resolution.nanoseconds(high << 32 | low),
            original_length: self.order.u32_at(&body, 16),
            link_type: interface.link_type,
            frame: part(body, 20, length)?,
        })
    }

    fn simple(&self, body: Vec<u8>) -> Option<Captured> {
        let interface = self.interfaces.first()?;
        let original_length = self.order.u32_at(&body, 0);
        let length = match interface.snapshot {
            0 => original_length,
            snapshot => original_length.min(snapshot),
        };
        Some(Captured {
            timestamp_ns: 0,
            original_length,
            link_type: interface.link_type,
            frame: part(body, 4, usize::try_from(length).ok()?)?,
        })
    }
}

impl Resolution {
    /// The option's value: a power of ten, or of two when the highest bit is set. Finer than a
    /// 64-bit second can count reads as nanoseconds.
    fn of(value: u8) -> Self {
        let power = u32::from(value & 0x7f);
        let base: u64 = if value & 0x80 == 0 { 10 } else { 2 };
        Self(base.checked_pow(power).unwrap_or(1_000_000_000))
    }

    fn nanoseconds(self, units: u64) -> u64 {
        let nanoseconds = u128::from(units) * 1_000_000_000 / u128::from(self.0);
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }
}

/// Checks the length of a block of at least `smallest` bytes.
fn block_length<R: Read>(length: u32, smallest: usize, input: &Input<R>) -> Result<usize, Error> {
    match usize::try_from(length) {
        Ok(length) if length >= smallest && length % 4 == 0 => Ok(length),
        _ => Err(input.broken("a block of impossible length")),
    }
}

fn part(mut body: Vec<u8>, from: usize, length: usize) -> Option<Vec<u8>> {
    let end = from.checked_add(length)?;
    (end <= body.len()).then(|| {
        body.truncate(end);
        body.split_off(from)
    })
}
