//! Places subscribers' addresses so that the kernel finds each with one multiplication and one
//! look-up: a multiplier is searched under which no two share a slot.

use std::net::{IpAddr, SocketAddr};

use super::Subscriber;
use crate::Error;

/// log2 of the slots; twin of `DELAY_ENDPOINTS_LOG2`.
pub(super) const LOG2: u32 = 13;
/// More leave no multiplier that can be found quickly.
pub(super) const MOST: usize = 256;

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
    let mut taken = vec![false; 1 << LOG2];
    mixed
        .iter()
        .map(|value| {
            let slot = u32::try_from(value.wrapping_mul(multiplier) >> (64 - LOG2)).ok()?;
            let taken = &mut taken[slot as usize];
            (!std::mem::replace(taken, true)).then_some(slot)
        })
        .collect()
}

/// The value of `struct endpoint` for a subscriber.
pub(super) fn value(index: u32, subscriber: Subscriber) -> [u8; 32] {
    let mut value = [0; 32];
    value[..16].copy_from_slice(&octets(subscriber.address));
    value[16..18].copy_from_slice(&subscriber.address.port().to_be_bytes());
    value[18..20].copy_from_slice(&1_u16.to_ne_bytes());
    value[20..24].copy_from_slice(&index.to_ne_bytes());
    value[24..28].copy_from_slice(&subscriber.flow.to_ne_bytes());
    value
}

fn mix(address: SocketAddr) -> u64 {
    let octets = octets(address);
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| octets[at + i]));
    let port = u16::from_ne_bytes(address.port().to_be_bytes());
    half(0) ^ half(8) ^ (u64::from(port) << 16)
}

fn octets(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
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
        let most = subscribers(u16::try_from(MOST).unwrap());
        let (multiplier, slots) = place(&most).unwrap();
        let mut distinct = slots.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), MOST);
        assert_eq!(multiplier % 2, 1);
        assert!(slots.iter().all(|slot| *slot < 1 << LOG2));
    }

    #[test]
    fn the_same_address_twice_is_refused() {
        let mut two = subscribers(2);
        two[1] = two[0];
        assert!(place(&two).is_err());
    }
}
