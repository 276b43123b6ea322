//! Places subscribers' addresses so that the kernel finds each with one multiplication and one
//! look-up: a multiplier is searched under which no two share a slot.

use std::net::{IpAddr, SocketAddr};

use super::Subscriber;
use super::skel::types;
use crate::Error;

/// log2 of the slots; twin of `DELAY_ENDPOINTS_LOG2`.
pub(super) const SLOTS_LOG2: u32 = 13;
/// For more subscribers, no multiplier can be found quickly.
pub(super) const MAX_SUBSCRIBERS: usize = 256;

/// A multiplier, and the slot of each subscriber under it.
pub(super) fn place(subscribers: &[Subscriber]) -> Result<(u64, Vec<u32>), Error> {
    let mixed: Vec<u64> = subscribers.iter().map(|s| mix(s.address)).collect();
    let mut multiplier = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200_000 {
        if let Some(slots) = slots(&mixed, multiplier) {
            return Ok((multiplier, slots));
        }
        // Marsaglia's xorshift64; the top bits of a product depend on all bits of an odd factor.
        multiplier ^= multiplier << 13;
        multiplier ^= multiplier >> 7;
        multiplier ^= multiplier << 17;
        multiplier |= 1;
    }
    Err(Error::Config(
        "two subscribers have one address and port".into(),
    ))
}

fn slots(mixed: &[u64], multiplier: u64) -> Option<Vec<u32>> {
    let mut taken = vec![false; 1 << SLOTS_LOG2];
    mixed
        .iter()
        .map(|value| {
            let slot = u32::try_from(value.wrapping_mul(multiplier) >> (64 - SLOTS_LOG2)).ok()?;
            let taken = &mut taken[slot as usize];
            (!std::mem::replace(taken, true)).then_some(slot)
        })
        .collect()
}

pub(super) fn endpoint(index: u32, subscriber: Subscriber) -> types::endpoint {
    types::endpoint {
        address: halves(subscriber.address),
        port: subscriber.address.port().to_be(),
        used: 1,
        subscriber: index,
        flow: subscriber.flow,
        zero: 0,
    }
}

fn mix(address: SocketAddr) -> u64 {
    let [low, high] = halves(address);
    low ^ high ^ (u64::from(address.port().to_be()) << 16)
}

/// The address as it lies in a packet, IPv4 mapped.
fn halves(address: SocketAddr) -> [u64; 2] {
    let octets = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| octets[at + i])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribers(count: u16) -> Vec<Subscriber> {
        (0..count)
            .map(|i| Subscriber {
                address: SocketAddr::from(([10, 0, 1, (i % 7) as u8], 5000 + i)),
                flow: 0,
            })
            .collect()
    }

    #[test]
    fn every_subscriber_has_a_slot_of_its_own() {
        let most = subscribers(u16::try_from(MAX_SUBSCRIBERS).unwrap());
        let (multiplier, slots) = place(&most).unwrap();
        let mut distinct = slots.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), MAX_SUBSCRIBERS);
        assert_eq!(multiplier % 2, 1);
        assert!(slots.iter().all(|slot| *slot < 1 << SLOTS_LOG2));
    }

    #[test]
    fn the_same_address_twice_is_refused() {
        let mut two = subscribers(2);
        two[1] = two[0];
        assert!(place(&two).is_err());
    }
}
