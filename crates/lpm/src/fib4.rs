//! IPv4: one table lookup by the first 24 bits, a second one for the few /24s that hold longer
//! prefixes (Gupta, Lin and McKeown, "Routing Lookups in Hardware at Memory Access Speeds",
//! INFOCOM 1998), with entries of one byte wherever the next hop fits one.

mod capacity;
mod dir24;
mod entry;
mod restore;
mod writer;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use rcu::Reader;

use crate::memory::{Content, Contents, Provider, Section};
use crate::{Error, NextHop, Prefix4, Rib, Simd};
use dir24::{Dir24, Key};
use writer::Writer;

pub use capacity::Capacity4;

/// The width of the entries of the first table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout4 {
    /// One byte, 16 MiB: next hops 1..=254 only.
    Bytes,
    /// One byte for next hops 1..=254, and a table of two bytes for all others, 48 MiB: for more
    /// next hops of which those below 255 have most of the traffic.
    Mixed,
    /// Two bytes, 32 MiB: all next hops cost the same.
    Words,
}

impl Layout4 {
    pub const ALL: [Self; 3] = [Self::Bytes, Self::Mixed, Self::Words];

    /// The name in configurations and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Mixed => "mixed",
            Self::Words => "words",
        }
    }

    /// The largest next hop that it holds.
    pub const fn limit(self) -> u16 {
        match self {
            Self::Bytes => BYTE_MAX,
            Self::Mixed | Self::Words => NextHop::MAX,
        }
    }
}

/// The largest next hop that one byte holds; the largest byte means "look further".
const BYTE_MAX: u16 = 254;

/// Prefixes made into a table, and the one writer of that table.
#[derive(Debug)]
pub struct Fib4 {
    rib: Rib<u32>,
    writer: Width<Writer<u8>, Writer<u16>>,
    simd: Simd,
}

/// Looks up in another thread while the [`Fib4`] it comes from is changed. Each address is
/// answered from before or from after a change, never between. A clone serves another thread.
#[derive(Clone, Debug)]
pub struct Reader4 {
    tables: Tables,
    reader: Reader,
    simd: Simd,
}

type Tables = Width<Arc<Dir24<u8>>, Arc<Dir24<u16>>>;

/// One thing for entries of a byte, another for entries of two.
#[derive(Clone, Debug)]
enum Width<B, W> {
    Bytes(B),
    Words(W),
}

impl Fib4 {
    /// A table without prefixes.
    ///
    /// # Errors
    /// When there is no address space for it.
    pub fn new(layout: Layout4) -> Result<Self, Error> {
        Self::build(Rib::new(), layout)
    }

    /// The table of all prefixes of `rib`.
    ///
    /// # Errors
    /// A next hop that `layout` cannot hold, too many /24s with longer prefixes (2^20), no address
    /// space.
    pub fn build(rib: Rib<u32>, layout: Layout4) -> Result<Self, Error> {
        Self::build_in(rib, layout, &Capacity4::default(), &mut Section::in_process)
    }

    /// As `build`, with this capacity, in arrays that `memory` provides.
    ///
    /// # Errors
    /// As `build`; memory that cannot be had or is too short.
    pub fn build_in(
        rib: Rib<u32>,
        layout: Layout4,
        capacity: &Capacity4,
        memory: &mut Provider<'_>,
    ) -> Result<Self, Error> {
        let writer = match layout {
            Layout4::Bytes => Width::Bytes(Writer::build(&rib, false, capacity, memory)?),
            Layout4::Mixed => Width::Words(Writer::build(&rib, true, capacity, memory)?),
            Layout4::Words => Width::Words(Writer::build(&rib, false, capacity, memory)?),
        };
        Ok(Self::of(rib, writer))
    }

    /// The table that [`Fib4::contents`] was taken from, whose prefixes are those of `rib`, without
    /// building it. That of `Mixed` may become one of `Words` and the other way round, and that of `Bytes`
    /// either of them.
    ///
    /// Any content is safe: each index in it is looked at, and none is kept. Whether answers are those
    /// of `rib` is not looked at, which is a matter of checksums.
    ///
    /// # Errors
    /// As `build_in`; content that no table has, or none with these prefixes.
    pub fn restore(
        rib: Rib<u32>,
        layout: Layout4,
        capacity: &Capacity4,
        memory: &mut Provider<'_>,
        contents: &Contents<'_>,
    ) -> Result<Self, Error> {
        let writer = match layout {
            Layout4::Bytes => {
                Width::Bytes(Writer::restore(&rib, false, capacity, memory, contents)?)
            }
            Layout4::Mixed => {
                Width::Words(Writer::restore(&rib, true, capacity, memory, contents)?)
            }
            Layout4::Words => {
                Width::Words(Writer::restore(&rib, false, capacity, memory, contents)?)
            }
        };
        Ok(Self::of(rib, writer))
    }

    fn of(rib: Rib<u32>, writer: Width<Writer<u8>, Writer<u16>>) -> Self {
        Self {
            rib,
            writer,
            simd: Self::usual_simd(),
        }
    }

    /// The parts of the arrays that are in use: all that [`Fib4::restore`] needs besides the prefixes.
    pub fn contents(&self) -> Vec<Content<'_>> {
        match &self.writer {
            Width::Bytes(writer) => writer.contents(),
            Width::Words(writer) => writer.contents(),
        }
    }

    /// Has the writer call `grace` before it uses memory again that readers may look at of which
    /// the table knows nothing, such as BPF programs. It returns when no such reader runs any more
    /// that started before the call. It is called by `insert` and `remove`: once for thousands of
    /// changes, or when there is no other memory left.
    pub fn set_grace(&mut self, grace: impl FnMut() + Send + Sync + 'static) {
        let grace = Box::new(grace);
        match &mut self.writer {
            Width::Bytes(writer) => writer.set_grace_period(grace),
            Width::Words(writer) => writer.set_grace_period(grace),
        }
    }

    /// Adds a prefix or replaces its next hop; returns the one it had.
    ///
    /// # Errors
    /// As `build`; then nothing has changed.
    pub fn insert(&mut self, prefix: Prefix4, hop: NextHop) -> Result<Option<NextHop>, Error> {
        match &mut self.writer {
            Width::Bytes(writer) => writer.insert(&mut self.rib, prefix, hop),
            Width::Words(writer) => writer.insert(&mut self.rib, prefix, hop),
        }
    }

    /// Withdraws a prefix; returns the next hop it had.
    pub fn remove(&mut self, prefix: Prefix4) -> Option<NextHop> {
        match &mut self.writer {
            Width::Bytes(writer) => writer.remove(&mut self.rib, prefix),
            Width::Words(writer) => writer.remove(&mut self.rib, prefix),
        }
    }

    /// The prefixes in the table.
    pub fn rib(&self) -> &Rib<u32> {
        &self.rib
    }

    /// A reader for another thread.
    pub fn reader(&self) -> Reader4 {
        Reader4 {
            tables: self.tables(),
            reader: match &self.writer {
                Width::Bytes(writer) => writer.reader(),
                Width::Words(writer) => writer.reader(),
            },
            simd: self.simd,
        }
    }

    /// The instructions that are never slow: AVX2 where there is AVX2. By AVX-512 tables are read in gathers,
    /// which is faster only where a gather is not microcode: a measurement on the machine says it.
    pub fn usual_simd() -> Simd {
        if Simd::Avx2.is_available() {
            Simd::Avx2
        } else {
            Simd::Portable
        }
    }

    /// Looks up by these instructions from now on, as do readers made from now on.
    ///
    /// # Panics
    /// When this machine does not have them (see [`Simd::available`]).
    #[must_use]
    pub fn with_simd(mut self, simd: Simd) -> Self {
        assert!(simd.is_available(), "this machine has no {}", simd.name());
        self.simd = simd;
        self
    }

    /// The next hop of one address in host order.
    pub fn lookup(&self, address: u32) -> Option<NextHop> {
        let mut code = [0];
        self.tables()
            .lookup_batch(Simd::Portable, &[address], &mut code);
        NextHop::new(code[0])
    }

    /// The next hops of addresses in host order, [`crate::NO_ROUTE`] where there is none.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup_batch(&self, addresses: &[u32], hops: &mut [u16]) {
        self.tables().lookup_batch(self.simd, addresses, hops);
    }

    /// As `lookup_batch`, of addresses as packets carry them.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup_batch_be(&self, addresses: &[[u8; 4]], hops: &mut [u16]) {
        self.tables().lookup_batch(self.simd, addresses, hops);
    }

    /// Bytes of the tables in use, without the [`Rib`]: see [`Rib::bytes`].
    pub fn bytes(&self) -> usize {
        match &self.writer {
            Width::Bytes(writer) => writer.bytes(),
            Width::Words(writer) => writer.bytes(),
        }
    }

    fn tables(&self) -> Tables {
        match &self.writer {
            Width::Bytes(writer) => Width::Bytes(writer.tables()),
            Width::Words(writer) => Width::Words(writer.tables()),
        }
    }
}

impl Reader4 {
    /// The next hops of addresses in host order, [`crate::NO_ROUTE`] where there is none.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup_batch(&mut self, addresses: &[u32], hops: &mut [u16]) {
        let _guard = self.reader.pin();
        self.tables.lookup_batch(self.simd, addresses, hops);
    }

    /// As `lookup_batch`, of addresses as packets carry them.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup_batch_be(&mut self, addresses: &[[u8; 4]], hops: &mut [u16]) {
        let _guard = self.reader.pin();
        self.tables.lookup_batch(self.simd, addresses, hops);
    }
}

impl Tables {
    fn lookup_batch<K: Key>(&self, simd: Simd, keys: &[K], hops: &mut [u16]) {
        assert_eq!(keys.len(), hops.len(), "one answer to each address");
        match self {
            Self::Bytes(dir) => bytes(dir, simd, keys, hops),
            Self::Words(dir) => match dir.projection() {
                Some(bytes) => mixed(dir, bytes, simd, keys, hops),
                None => words(dir, simd, keys, hops),
            },
        }
    }
}

fn bytes<K: Key>(dir: &Dir24<u8>, simd: Simd, keys: &[K], hops: &mut [u16]) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => avx512::bytes(dir, keys, hops),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => avx2::bytes(dir, keys, hops),
        _ => dir.lookup_batch(keys, hops),
    }
}

fn words<K: Key>(dir: &Dir24<u16>, simd: Simd, keys: &[K], hops: &mut [u16]) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => avx512::words(dir, keys, hops),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => avx2::words(dir, keys, hops),
        _ => dir.lookup_batch(keys, hops),
    }
}

fn mixed<K: Key>(dir: &Dir24<u16>, bytes: &[AtomicU8], simd: Simd, keys: &[K], hops: &mut [u16]) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => avx512::mixed(dir, bytes, keys, hops),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => avx2::mixed(dir, bytes, keys, hops),
        _ => dir.lookup_batch_by(bytes, keys, hops),
    }
}
