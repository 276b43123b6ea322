//! IPv6: an entry for each /32, and for a /32 that holds longer prefixes a line of sorted bounds that
//! one vector comparison searches. Most addresses take two or three reads of memory.

mod buddy;
mod capacity;
mod kernel;
mod lines;
mod sweep;
mod trie;
mod writer;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::sync::Arc;

use rcu::Reader;

use crate::memory::{Content, Contents, Provider, Section};
use crate::{Error, NO_ROUTE, NextHop, Prefix6, Rib, Simd};
use trie::Trie;
use writer::Writer;

pub use capacity::Capacity6;

/// How a table finds the entries of /32s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout6 {
    /// By pages of a /20 each: small arrays that can be copied as they are.
    Paged,
    /// The entries of 2000::/3 are in one array of 2 GiB of address space, of which only the parts with
    /// prefixes become memory: one read less. Others are paged.
    Flat,
}

impl Layout6 {
    pub const ALL: [Self; 2] = [Self::Paged, Self::Flat];

    /// The name in configurations and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paged => "paged",
            Self::Flat => "flat",
        }
    }
}

/// Prefixes made into a table, and the one writer of that table.
#[derive(Debug)]
pub struct Fib6 {
    rib: Rib<u128>,
    writer: Writer,
    simd: Simd,
}

/// Looks up in another thread while the [`Fib6`] it comes from is changed. Each address is
/// answered from before or from after a change, never between. A clone serves another thread.
#[derive(Clone, Debug)]
pub struct Reader6 {
    trie: Arc<Trie>,
    reader: Reader,
    simd: Simd,
}

impl Fib6 {
    /// A table without prefixes.
    ///
    /// # Errors
    /// When there is no address space for it.
    pub fn new(layout: Layout6) -> Result<Self, Error> {
        Self::build(Rib::new(), layout)
    }

    /// The table of all prefixes of `rib`.
    ///
    /// # Errors
    /// More prefixes of some kind than the table has room for, no address space.
    pub fn build(rib: Rib<u128>, layout: Layout6) -> Result<Self, Error> {
        Self::build_in(rib, layout, &Capacity6::default(), &mut Section::in_process)
    }

    /// As `build`, with so much room, in arrays that `memory` provides.
    ///
    /// # Errors
    /// As `build`; memory that cannot be had or is too short.
    pub fn build_in(
        rib: Rib<u128>,
        layout: Layout6,
        capacity: &Capacity6,
        memory: &mut Provider<'_>,
    ) -> Result<Self, Error> {
        let writer = Writer::build(&rib, layout == Layout6::Flat, capacity, memory)?;
        Ok(Self::of(rib, writer))
    }

    /// The table that [`Fib6::contents`] was taken from, whose prefixes are those of `rib`, without
    /// building it. Either layout may become the other.
    ///
    /// Any content is safe: each index in it is looked at, and none is kept. Whether answers are those
    /// of `rib` is not looked at, which is a matter of checksums.
    ///
    /// # Errors
    /// As `build_in`; content that no table has.
    pub fn restore(
        rib: Rib<u128>,
        layout: Layout6,
        capacity: &Capacity6,
        memory: &mut Provider<'_>,
        contents: &Contents<'_>,
    ) -> Result<Self, Error> {
        let writer = Writer::restore(&rib, layout == Layout6::Flat, capacity, memory, contents)?;
        Ok(Self::of(rib, writer))
    }

    fn of(rib: Rib<u128>, writer: Writer) -> Self {
        Self {
            rib,
            writer,
            simd: Simd::widest(),
        }
    }

    /// The parts of the arrays that are in use: all that [`Fib6::restore`] needs besides the prefixes.
    /// A `Flat` table returns the contents that it would have as `Paged`.
    pub fn contents(&self) -> Vec<Content<'_>> {
        self.writer.contents()
    }

    /// Has the writer call `grace` before it uses memory again that readers may look at of which
    /// the table knows nothing, such as BPF programs. It returns when no such reader runs any more
    /// that started before the call. It is called by `insert` and `remove`: once for thousands of
    /// changes, or when there is no other memory left.
    pub fn set_grace(&mut self, grace: impl FnMut() + Send + Sync + 'static) {
        self.writer.set_grace_period(Box::new(grace));
    }

    /// Adds a prefix or replaces its next hop; returns the one it had.
    ///
    /// # Errors
    /// As `build`; then nothing has changed.
    pub fn insert(&mut self, prefix: Prefix6, hop: NextHop) -> Result<Option<NextHop>, Error> {
        self.writer.insert(&mut self.rib, prefix, hop)
    }

    /// Withdraws a prefix; returns the next hop it had.
    ///
    /// # Errors
    /// As `build`: what is left may need more room than what was. Then nothing has changed.
    pub fn remove(&mut self, prefix: Prefix6) -> Result<Option<NextHop>, Error> {
        self.writer.remove(&mut self.rib, prefix)
    }

    /// The prefixes in the table.
    pub fn rib(&self) -> &Rib<u128> {
        &self.rib
    }

    /// A reader for another thread.
    pub fn reader(&self) -> Reader6 {
        Reader6 {
            trie: self.writer.trie(),
            reader: self.writer.reader(),
            simd: self.simd,
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
    pub fn lookup(&self, address: u128) -> Option<NextHop> {
        let mut code = [NO_ROUTE];
        look_up(
            &self.writer.trie(),
            Simd::Portable,
            &[address.to_be_bytes()],
            &mut code,
        );
        NextHop::new(code[0])
    }

    /// The next hops of addresses as packets carry them, [`crate::NO_ROUTE`] where there is none.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup_batch(&self, addresses: &[[u8; 16]], hops: &mut [u16]) {
        look_up(&self.writer.trie(), self.simd, addresses, hops);
    }

    /// Bytes of the tables in use, without the [`Rib`]: see [`Rib::bytes`].
    pub fn bytes(&self) -> usize {
        self.writer.bytes()
    }
}

impl Reader6 {
    /// The next hops of addresses as packets carry them, [`crate::NO_ROUTE`] where there is none.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup_batch(&mut self, addresses: &[[u8; 16]], hops: &mut [u16]) {
        let _guard = self.reader.pin();
        look_up(&self.trie, self.simd, addresses, hops);
    }
}

fn look_up(trie: &Trie, simd: Simd, addresses: &[[u8; 16]], hops: &mut [u16]) {
    assert_eq!(addresses.len(), hops.len(), "one answer to each address");
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => avx512::look_up(trie, addresses, hops),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => avx2::look_up(trie, addresses, hops),
        _ => kernel::look_up(trie, addresses, hops, &lines::Scalar),
    }
}
