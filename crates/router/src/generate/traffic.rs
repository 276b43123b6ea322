//! Packets to the addresses of a table.

use std::net::SocketAddr;

use lpm::{Address, Rib};

use crate::random::Random;
use crate::traffic::{Destinations, Pattern};

/// UDP packets without end, from anywhere to the addresses of one family of a table; none for a table
/// without prefixes.
#[derive(Debug)]
pub struct Traffic<A: Address> {
    random: Random,
    destinations: Destinations<A>,
}

impl<A: Address> Traffic<A> {
    /// `packets` is how many `Pattern::Sequential` goes through the table in.
    pub fn new(rib: &Rib<A>, pattern: Pattern, packets: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let others = Random::new(random.bits());
        let destinations = Destinations::new(rib, pattern, others).once_in(packets);
        Self {
            random,
            destinations,
        }
    }
}

impl<A: Address> Iterator for Traffic<A> {
    type Item = (SocketAddr, SocketAddr);

    /// Source and destination.
    fn next(&mut self) -> Option<Self::Item> {
        let to = self.destinations.next()?;
        let from = A::narrow(self.random.wide());
        let [a, b, c, d, ..] = self.random.bits().to_le_bytes();
        let port = |low, high| u16::from_le_bytes([low, high]).max(1);
        let socket = |address: A, port| SocketAddr::new(address.ip(), port);
        Some((socket(from, port(a, b)), socket(to, port(c, d))))
    }
}
