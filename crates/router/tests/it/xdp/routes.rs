//! The program's next hops are those of the tables.

use std::io::Read;
use std::path::Path;

use lpm::{Address, Fib4, Fib6, Layout4, Layout6, NO_ROUTE, NextHop, Prefix, Rib};
use packet::{build, checksum};
use router::forward::{Adjacency, Family, Forwarding, Plane};
use router::random::Random;
use router::xdp::{Settings, Xdp};

use super::rig::{OURS, PASS, REDIRECT, SENDER, Space, hop, test_run};

/// The real table's prefixes of one family, with next hops 1..=`hops`, evenly.
pub fn real<A: Address>(corpus: &Path, hops: u64) -> Rib<A> {
    let file = std::fs::File::open(corpus.join("fib/prefixes.txt.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let mut random = Random::new(7);
    let ours = text
        .lines()
        .filter(|line| line.contains(':') == (A::BITS == 128));
    ours.map(|line| {
        let prefix: Prefix<A> = line.trim().parse().unwrap();
        (prefix, hop(1 + (random.bits() % hops) as u16))
    })
    .collect()
}

/// Has each next hop send to an address that names it.
fn name_hops(space: &Space, xdp: &mut Xdp, family: Family, hops: u16) {
    space.run(|| {
        for number in 1..=hops {
            let [high, low] = number.to_be_bytes();
            let to = Adjacency {
                destination: [2, 1, 0, 0, high, low],
                ..space.adjacency()
            };
            let to = Forwarding::Neighbour(to);
            xdp.next_hop(family, hop(number), &to).unwrap();
        }
    });
}

/// A frame in which only the destination changes.
struct Probe {
    frame: Vec<u8>,
    v6: bool,
}

impl Probe {
    fn new(v6: bool) -> Self {
        let at = |text: &str| text.parse().unwrap();
        let (source, destination) = if v6 {
            (at("[3fff::1]:1"), at("[3fff::2]:2"))
        } else {
            (at("198.51.100.1:1"), at("198.51.100.2:2"))
        };
        Self {
            frame: build::udp(source, destination).macs(SENDER, OURS).frame(),
            v6,
        }
    }

    /// The next hop that the program finds.
    fn look_up(&mut self, xdp: &Xdp, address: &[u8]) -> u16 {
        if self.v6 {
            self.frame[38..54].copy_from_slice(address);
        } else {
            self.frame[30..34].copy_from_slice(address);
            self.frame[24..26].fill(0);
            let sum = checksum::checksum(&self.frame[14..34]).to_be_bytes();
            self.frame[24..26].copy_from_slice(&sum);
        }
        let (verdict, out) = test_run(xdp, &self.frame);
        match verdict {
            REDIRECT => u16::from_be_bytes([out[4], out[5]]),
            _ => {
                assert_eq!(verdict, PASS);
                NO_ROUTE
            }
        }
    }
}

/// As what they are for a router: neither loopback nor multicast nor "this network".
fn is_unicast4(address: u32) -> bool {
    !matches!(address >> 24, 0 | 127 | 224..=239) && address != u32::MAX
}

fn is_unicast6(address: u128) -> bool {
    !matches!(address >> 118, 0x3fa) && address >> 120 != 0xff && address >> 32 > 0xffff
}

fn check4(space: &Space, xdp: &Xdp, fib: &Fib4, addresses: &[u32]) {
    let mut expected = vec![0; addresses.len()];
    fib.lookup_batch(addresses, &mut expected);
    space.run(|| {
        let mut probe = Probe::new(false);
        for (address, expected) in addresses.iter().zip(expected) {
            let found = probe.look_up(xdp, &address.to_be_bytes());
            assert_eq!(found, expected, "{}", std::net::Ipv4Addr::from(*address));
        }
    });
}

fn check6(space: &Space, xdp: &Xdp, fib: &Fib6, addresses: &[u128]) {
    space.run(|| {
        let mut probe = Probe::new(true);
        for address in addresses {
            let found = probe.look_up(xdp, &address.to_be_bytes());
            let expected = fib.lookup(*address).map_or(NO_ROUTE, NextHop::get);
            assert_eq!(found, expected, "{}", std::net::Ipv6Addr::from(*address));
        }
    });
}

fn bounds4(rib: &Rib<u32>) -> Vec<u32> {
    let around = |(prefix, _): (Prefix<u32>, NextHop)| {
        let (first, last) = (prefix.first(), prefix.last());
        [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
    };
    let mut all: Vec<_> = rib.iter().flat_map(around).collect();
    all.retain(|address| is_unicast4(*address));
    all.sort_unstable();
    all.dedup();
    all
}

fn bounds6(rib: &Rib<u128>) -> Vec<u128> {
    let around = |(prefix, _): (Prefix<u128>, NextHop)| {
        let (first, last) = (prefix.first(), prefix.last());
        [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
    };
    let mut all: Vec<_> = rib.iter().flat_map(around).collect();
    all.retain(|address| is_unicast6(*address));
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn the_real_table_at_all_its_bounds() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let (v4, v6): (Rib<u32>, Rib<u128>) = (real(&corpus, 200), real(&corpus, 200));
    let settings = Settings {
        layout4: Layout4::Bytes,
        ..Settings::default()
    };
    let mut xdp = space.start(&settings, v4.clone(), v6.clone());
    name_hops(&space, &mut xdp, Family::V4, 200);
    name_hops(&space, &mut xdp, Family::V6, 200);
    let fib = Fib4::build(v4.clone(), Layout4::Bytes).unwrap();
    check4(&space, &xdp, &fib, &bounds4(&v4));
    let fib = Fib6::build(v6.clone(), Layout6::Paged).unwrap();
    check6(&space, &xdp, &fib, &bounds6(&v6));
}

#[test]
fn more_next_hops_than_a_byte_holds() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let v4: Rib<u32> = real(&corpus, 3000);
    let mut xdp = space.start(&Settings::default(), v4.clone(), Rib::new());
    name_hops(&space, &mut xdp, Family::V4, 3000);
    let fib = Fib4::build(v4.clone(), Layout4::Mixed).unwrap();
    let long = v4.iter().filter(|(prefix, _)| prefix.len() > 24).collect();
    check4(&space, &xdp, &fib, &bounds4(&long));
    let some: Vec<_> = bounds4(&v4).into_iter().step_by(37).collect();
    check4(&space, &xdp, &fib, &some);
}

/// Prefixes of all lengths, crowded, so that groups, cells, lines and deep blocks come and go.
#[test]
fn changes_are_followed() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let mut xdp = space.start(&Settings::default(), Rib::new(), Rib::new());
    name_hops(&space, &mut xdp, Family::V4, 300);
    name_hops(&space, &mut xdp, Family::V6, 300);
    let mut fib4 = Fib4::new(Layout4::Mixed).unwrap();
    let mut fib6 = Fib6::new(Layout6::Paged).unwrap();
    let mut random = Random::new(11);
    for _ in 0..20 {
        for _ in 0..200 {
            let number = random.bits();
            let some = (number >> 32 & 3 != 0).then(|| hop(1 + (number >> 40) as u16 % 300));
            let address = 0x2d00_0000 | number as u32 & 0x0003_0fff;
            let prefix = Prefix::containing(address, 8 + (number >> 34) as u8 % 25).unwrap();
            xdp.route4(prefix, some).unwrap();
            match some {
                Some(hop) => fib4.insert(prefix, hop).unwrap(),
                None => fib4.remove(prefix),
            };
            let low = random.bits();
            let address = 0x2a01 << 112 | u128::from(number & 0x0103_00ff) << 80;
            let address = address | u128::from(low & 0xf0ff_0000_0000_0003);
            let prefix = Prefix::containing(address, 8 + (number >> 34) as u8 % 121).unwrap();
            xdp.route6(prefix, some).unwrap();
            match some {
                Some(hop) => fib6.insert(prefix, hop).unwrap(),
                None => fib6.remove(prefix).unwrap(),
            };
        }
        check4(&space, &xdp, &fib4, &bounds4(fib4.rib()));
        check6(&space, &xdp, &fib6, &bounds6(fib6.rib()));
    }
    assert!(xdp.routes().0.len() > 300 && xdp.routes().1.len() > 300);
}
