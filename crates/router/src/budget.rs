//! What the import of one file may cost. A small file can ask for much: it unpacks to gigabytes, or its ranges, sets
//! and chains multiply. Every importer charges here what it unpacks, keeps and works on, so that it is refused early.
//!
//! Work is counted and not timed: a file is taken or refused on every machine alike.

use std::cell::Cell;
use std::io;

/// What every file gets, and what each of its bytes, as they are packed, adds. A real table is nowhere near its limits:
/// a full table of routes and a listing of 100,000 addresses in a set stay below a fourth.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    base: u64,
    for_each_byte: u64,
}

const UNPACKED_BYTES: Allowance = Allowance {
    base: 64 << 20,
    for_each_byte: 128,
};
const MEMORY: Allowance = Allowance {
    base: 64 << 20,
    for_each_byte: 64,
};
/// A step is about 15 nanoseconds.
const WORK: Allowance = Allowance {
    base: 128 << 20,
    for_each_byte: 128,
};

/// Steps of work that a line takes, even where it says nothing.
const LINE: usize = 4;

/// The costs of one file so far.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Bytes of the file as it is, packed or plain.
    read: Cell<u64>,
    unpacked: Cell<u64>,
    memory: Cell<u64>,
    work: Cell<u64>,
    exhausted: Cell<Option<Exhaustion>>,
    /// What `base` of each allowance is divided by.
    divisor: u64,
}

/// A file costs more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exhaustion {
    #[error(
        "{read} packed bytes become more than {most}, and no table is packed so tightly: unpack the file, and look at what it holds"
    )]
    Unpacked { read: u64, most: u64 },
    #[error(
        "up to here the file needs more than {} MiB of memory, which is the limit for a file of {read} bytes: use fewer or simpler ranges, sets and lists of next hops, or split the file",
        .most >> 20
    )]
    Memory { read: u64, most: u64 },
    #[error(
        "up to here the file needs more than {most} steps of work, which is the limit for a file of {read} bytes: use fewer rules whose chains, sets or ranges multiply, or split the file"
    )]
    Work { read: u64, most: u64 },
}

impl From<Exhaustion> for String {
    fn from(exhausted: Exhaustion) -> Self {
        exhausted.to_string()
    }
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self::with_divisor(1)
    }

    /// A smaller budget, which tests exhaust soon.
    pub(crate) fn with_divisor(divisor: u64) -> Self {
        Self {
            read: Cell::new(0),
            unpacked: Cell::new(0),
            memory: Cell::new(0),
            work: Cell::new(0),
            exhausted: Cell::new(None),
            divisor,
        }
    }

    /// Counts bytes of the file, from which the limits follow.
    pub(crate) fn read(&self, bytes: usize) {
        self.read.set(self.read.get() + bytes as u64);
    }

    /// Charges content, once it is unpacked.
    pub(crate) fn unpack(&self, bytes: usize) -> Result<(), Exhaustion> {
        self.unpacked.set(self.unpacked.get() + bytes as u64);
        let (read, most) = (self.read.get(), self.most(UNPACKED_BYTES));
        self.check(
            self.unpacked.get(),
            most,
            Exhaustion::Unpacked { read, most },
        )
    }

    /// Charges memory that stays in use until the import is done.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Exhaustion> {
        self.room(bytes)?;
        self.memory.set(self.memory.get() + bytes as u64);
        Ok(())
    }

    /// Takes back what `hold` charged.
    pub(crate) fn release(&self, bytes: usize) {
        self.memory
            .set(self.memory.get().saturating_sub(bytes as u64));
    }

    /// Whether so many bytes more can be used for a while.
    pub(crate) fn room(&self, bytes: usize) -> Result<(), Exhaustion> {
        let used = self.memory.get().saturating_add(bytes as u64);
        let (read, most) = (self.read.get(), self.most(MEMORY));
        self.check(used, most, Exhaustion::Memory { read, most })
    }

    /// Charges steps of work.
    pub(crate) fn work(&self, steps: usize) -> Result<(), Exhaustion> {
        self.work.set(self.work.get().saturating_add(steps as u64));
        let (read, most) = (self.read.get(), self.most(WORK));
        self.check(self.work.get(), most, Exhaustion::Work { read, most })
    }

    /// Memory in use.
    pub(crate) fn memory(&self) -> usize {
        usize::try_from(self.memory.get()).unwrap_or(usize::MAX)
    }

    /// The first refusal, which may have come through a reader that hides it.
    pub(crate) fn exhaustion(&self) -> Option<Exhaustion> {
        self.exhausted.get()
    }

    fn most(&self, allowance: Allowance) -> u64 {
        let own = self.read.get().saturating_mul(allowance.for_each_byte);
        (allowance.base / self.divisor).saturating_add(own)
    }

    fn check(&self, used: u64, most: u64, refusal: Exhaustion) -> Result<(), Exhaustion> {
        if used <= most {
            return Ok(());
        }
        if self.exhausted.get().is_none() {
            self.exhausted.set(Some(refusal));
        }
        Err(refusal)
    }
}

/// Counts the bytes of a file as they are read.
#[derive(Debug)]
pub(crate) struct Counter<'a, R> {
    input: R,
    budget: &'a Budget,
}

impl<'a, R> Counter<'a, R> {
    pub(crate) fn new(input: R, budget: &'a Budget) -> Self {
        Self { input, budget }
    }
}

impl<R: io::Read> io::Read for Counter<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.budget.read(count);
        Ok(count)
    }
}

/// Charges what comes out of a decompressor.
#[derive(Debug)]
pub(crate) struct Unpacker<'a, R> {
    input: R,
    budget: &'a Budget,
}

impl<'a, R> Unpacker<'a, R> {
    pub(crate) fn new(input: R, budget: &'a Budget) -> Self {
        Self { input, budget }
    }
}

impl<R: io::Read> io::Read for Unpacker<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        let lines = buffer[..count].iter().filter(|byte| **byte == b'\n');
        let charged = self.budget.work(LINE * lines.count());
        let charged = charged.and_then(|()| self.budget.unpack(count));
        charged.map_err(io::Error::other)?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
