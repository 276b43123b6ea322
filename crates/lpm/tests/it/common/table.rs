//! One face for the IPv4 and the IPv6 table, so that they are held to the same tests.

use lpm::{Fib4, Fib6, Layout4, Layout6, NextHop, Prefix, Reader4, Reader6, Rib, Simd};

use super::Random;

pub trait Table: Sized {
    type Address: Random;
    type Reader: Send;
    type Variant: Copy + std::fmt::Debug;

    fn variants() -> Vec<Self::Variant>;
    fn build(rib: Rib<Self::Address>, variant: Self::Variant, simd: Simd) -> Self;
    fn insert(&mut self, prefix: Prefix<Self::Address>, hop: NextHop) -> Option<NextHop>;
    fn remove(&mut self, prefix: Prefix<Self::Address>) -> Option<NextHop>;
    fn rib(&self) -> &Rib<Self::Address>;
    fn lookup(&self, address: Self::Address) -> u16;
    /// All ways to look a batch up.
    fn look(&self, addresses: &[Self::Address]) -> Vec<Vec<u16>>;
    fn reader(&self) -> Self::Reader;
    fn read(reader: &mut Self::Reader, addresses: &[Self::Address]) -> Vec<u16>;

    /// Every variant with every instruction set that the machine has.
    fn each(mut test: impl FnMut(Self::Variant, Simd)) {
        for variant in Self::variants() {
            for simd in Simd::available() {
                test(variant, simd);
            }
        }
    }
}

impl Table for Fib4 {
    type Address = u32;
    type Reader = Reader4;
    type Variant = Layout4;

    fn variants() -> Vec<Layout4> {
        vec![Layout4::Bytes, Layout4::Mixed, Layout4::Words]
    }

    fn build(rib: Rib<u32>, variant: Layout4, simd: Simd) -> Self {
        Fib4::build(rib, variant).unwrap().with_simd(simd)
    }

    fn insert(&mut self, prefix: Prefix<u32>, hop: NextHop) -> Option<NextHop> {
        self.insert(prefix, hop).unwrap()
    }

    fn remove(&mut self, prefix: Prefix<u32>) -> Option<NextHop> {
        self.remove(prefix)
    }

    fn rib(&self) -> &Rib<u32> {
        self.rib()
    }

    fn lookup(&self, address: u32) -> u16 {
        self.lookup(address).map_or(lpm::NO_ROUTE, NextHop::get)
    }

    fn look(&self, addresses: &[u32]) -> Vec<Vec<u16>> {
        let swapped: Vec<_> = addresses
            .iter()
            .map(|address| address.to_be_bytes())
            .collect();
        let mut hops = vec![vec![0xdead; addresses.len()]; 2];
        self.lookup_batch(addresses, &mut hops[0]);
        self.lookup_batch_be(&swapped, &mut hops[1]);
        hops
    }

    fn reader(&self) -> Reader4 {
        self.reader()
    }

    fn read(reader: &mut Reader4, addresses: &[u32]) -> Vec<u16> {
        let mut hops = vec![0xdead; addresses.len()];
        reader.lookup_batch(addresses, &mut hops);
        hops
    }
}

impl Table for Fib6 {
    type Address = u128;
    type Reader = Reader6;
    type Variant = Layout6;

    fn variants() -> Vec<Layout6> {
        vec![Layout6::Paged, Layout6::Flat]
    }

    fn build(rib: Rib<u128>, variant: Layout6, simd: Simd) -> Self {
        Fib6::build(rib, variant).unwrap().with_simd(simd)
    }

    fn insert(&mut self, prefix: Prefix<u128>, hop: NextHop) -> Option<NextHop> {
        self.insert(prefix, hop).unwrap()
    }

    fn remove(&mut self, prefix: Prefix<u128>) -> Option<NextHop> {
        self.remove(prefix).unwrap()
    }

    fn rib(&self) -> &Rib<u128> {
        self.rib()
    }

    fn lookup(&self, address: u128) -> u16 {
        self.lookup(address).map_or(lpm::NO_ROUTE, NextHop::get)
    }

    fn look(&self, addresses: &[u128]) -> Vec<Vec<u16>> {
        let mut hops = vec![0xdead; addresses.len()];
        self.lookup_batch(&bytes(addresses), &mut hops);
        vec![hops]
    }

    fn reader(&self) -> Reader6 {
        self.reader()
    }

    fn read(reader: &mut Reader6, addresses: &[u128]) -> Vec<u16> {
        let mut hops = vec![0xdead; addresses.len()];
        reader.lookup_batch(&bytes(addresses), &mut hops);
        hops
    }
}

fn bytes(addresses: &[u128]) -> Vec<[u8; 16]> {
    addresses
        .iter()
        .map(|address| address.to_be_bytes())
        .collect()
}
