//! The program's verdicts are those of a linear search, and so are its counters.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

use acl::generate::{self, Kind};
use acl::{Action, Address, Key, Key4, Key6, Prefix, Protocol, Rule, Rule4, classbench, linear};
use lpm::Rib;
use packet::build::{self, Extension};
use packet::checksum;
use router::forward::{Family, Forwarding, Plane};
use router::random::Random;
use router::rules::{Hits, RuleSet};
use router::xdp::{End, Settings, Xdp};

use super::rig::{DROP, OURS, PASS, REDIRECT, SENDER, Space, hop, run, test_run};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Protocols with ports where UDP's are.
const WITH_PORTS: [u8; 5] = [TCP, UDP, 33, 132, 136];

/// A plane that forwards everything.
fn plane(space: &Space) -> Xdp {
    let (mut v4, mut v6) = (Rib::new(), Rib::new());
    v4.insert("0.0.0.0/0".parse().unwrap(), hop(1));
    v6.insert("::/0".parse().unwrap(), hop(1));
    let mut xdp = space.start(&Settings::default(), v4, v6);
    let to = Forwarding::Neighbour(space.adjacency());
    space.next_hop(&mut xdp, Family::V4, 1, &to);
    space.next_hop(&mut xdp, Family::V6, 1, &to);
    xdp
}

/// What a packet needs after its addresses.
fn transport(protocol: u8, ports: [[u8; 2]; 2]) -> Vec<u8> {
    let mut bytes = [ports[0], ports[1]].concat();
    bytes.resize(20, 0);
    match protocol {
        TCP => bytes[12] = 0x50,
        UDP => bytes[4..6].copy_from_slice(&20_u16.to_be_bytes()),
        _ => {}
    }
    bytes
}

/// A family's frames and what they may be.
pub trait Wire: Address {
    fn frame(key: &Key<Self>) -> Vec<u8>;
    fn is_unicast(self) -> bool;
    fn is_transport(protocol: u8) -> bool;
    fn set(rules: Vec<Rule<Self>>) -> RuleSet;
}

impl Wire for u32 {
    fn frame(key: &Key4) -> Vec<u8> {
        let mut frame = [&OURS[..], &SENDER, &[8, 0]].concat();
        frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, key.protocol, 0, 0]);
        frame.extend(key.source);
        frame.extend(key.destination);
        let sum = checksum::checksum(&frame[14..]).to_be_bytes();
        frame[24..26].copy_from_slice(&sum);
        frame.extend(transport(
            key.protocol,
            [key.source_port, key.destination_port],
        ));
        frame
    }

    fn is_unicast(self) -> bool {
        !matches!(self >> 24, 0 | 127 | 224..=239) && self != Self::MAX
    }

    fn is_transport(_: u8) -> bool {
        true
    }

    fn set(v4: Vec<Rule4>) -> RuleSet {
        RuleSet {
            v4,
            ..RuleSet::default()
        }
    }
}

impl Wire for u128 {
    fn frame(key: &Key6) -> Vec<u8> {
        let mut frame = [&OURS[..], &SENDER, &[0x86, 0xdd]].concat();
        frame.extend([0x60, 0, 0, 0, 0, 20, key.protocol, 64]);
        frame.extend(key.source);
        frame.extend(key.destination);
        frame.extend(transport(
            key.protocol,
            [key.source_port, key.destination_port],
        ));
        frame
    }

    fn is_unicast(self) -> bool {
        self >> 118 != 0x3fa && self >> 120 != 0xff && self >> 32 > 0xffff
    }

    /// Extension headers are none.
    fn is_transport(protocol: u8) -> bool {
        !matches!(protocol, 0 | 43 | 44 | 51 | 60)
    }

    fn set(v6: Vec<Rule<Self>>) -> RuleSet {
        RuleSet {
            v6,
            ..RuleSet::default()
        }
    }
}

/// Keys of packets that are forwarded but for the rules.
pub fn usable<A: Wire>(keys: impl IntoIterator<Item = Key<A>>) -> Vec<Key<A>> {
    let unicast = |key: &Key<A>| key.source().is_unicast() && key.destination().is_unicast();
    let mut keys: Vec<_> = keys.into_iter().filter(unicast).collect();
    keys.retain(|key| A::is_transport(key.protocol));
    for key in &mut keys {
        if !WITH_PORTS.contains(&key.protocol) {
            (key.source_port, key.destination_port) = ([0; 2], [0; 2]);
        }
    }
    keys
}

/// Every action in turn.
fn with_actions<A: Address>(mut rules: Vec<Rule<A>>) -> Vec<Rule<A>> {
    let actions = [Action::Accept, Action::Drop, Action::Punt];
    for (number, rule) in rules.iter_mut().enumerate() {
        rule.action = actions[number % 3];
    }
    rules
}

fn check<A: Wire>(space: &Space, xdp: &mut Xdp, rules: Vec<Rule<A>>, keys: &[Key<A>]) {
    let rules = with_actions(rules);
    space.run(|| xdp.rules(&A::set(rules.clone()))).unwrap();
    let mut wanted = Hits {
        rules: vec![0; rules.len()],
        none: 0,
    };
    space.run(|| {
        for key in keys {
            let rule = linear(&rules, key);
            match rule {
                Some(rule) => wanted.rules[rule] += 1,
                None => wanted.none += 1,
            }
            let verdict = match rule.map_or(Action::Accept, |rule| rules[rule].action) {
                Action::Accept => REDIRECT,
                Action::Drop => DROP,
                Action::Punt => PASS,
            };
            let frame = A::frame(key);
            assert_eq!(test_run(xdp, &frame).0, verdict, "{key:?} {rule:?}");
        }
    });
    let [v4, v6] = xdp.hits();
    let hits = if A::BITS == 32 { v4 } else { v6 };
    assert!(hits == wanted, "the counters are not those of the rules");
    assert!(keys.len() > 100, "{} keys", keys.len());
}

/// Keys at, just below and just above the ends of the rules' ranges.
fn around<A: Address>(rules: &[Rule<A>], count: usize) -> Vec<Key<A>> {
    let mut rng = Random::new(5);
    let mut random = |end: usize| (rng.bits() % end as u64) as usize;
    let mut keys = Vec::new();
    for _ in 0..count {
        let rule = &rules[random(rules.len())];
        let mut address = |prefix: &Prefix<A>| {
            let (first, last) = (prefix.first().widen(), prefix.last().widen());
            A::narrow([first, last, first.wrapping_sub(1), last.wrapping_add(1)][random(4)])
        };
        let (source, destination) = (address(&rule.source), address(&rule.destination));
        let mut port = |range: &std::ops::RangeInclusive<u16>| {
            let (first, last) = (*range.start(), *range.end());
            [first, last, first.wrapping_sub(1), last.wrapping_add(1)][random(4)]
        };
        let ports = (port(&rule.source_ports), port(&rule.destination_ports));
        let protocol = [rule.protocol.value, TCP, UDP, 132, 1][random(5)];
        keys.push(Key::new(source, destination, ports, protocol));
    }
    keys
}

fn generated<A: Wire>() {
    // A kernel that is emulated takes a millisecond for each.
    let of_each = 500 * sys::require::fuzz().min(3) as usize;
    let space = Space::new();
    let mut xdp = plane(&space);
    for (kind, count) in Kind::ALL
        .into_iter()
        .flat_map(|kind| [(kind, 40), (kind, 1000)])
    {
        let rules = generate::rules::<A>(kind, count, 3);
        let keys = around(&rules, of_each).into_iter();
        let keys = keys.chain(generate::keys_within::<A>(&rules, of_each, 4));
        let keys = usable(keys.chain(generate::keys_anywhere::<A>(of_each, 5)));
        check(&space, &mut xdp, rules, &keys);
    }
}

#[test]
fn lists_of_every_kind_are_exact() {
    if sys::require::root() {
        generated::<u32>();
        generated::<u128>();
    }
}

pub fn unpacked(corpus: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let archive = corpus.join("rules/classbench.tar.xz");
    let mut tar = Command::new("tar");
    let unpacked = tar.arg("xf").arg(archive).current_dir(&folder).status();
    assert!(unpacked.unwrap().success(), "tar and xz unpack the lists");
    folder
}

/// A list and its trace.
pub fn read(folder: &Path, name: &str) -> (Vec<Rule4>, Vec<Key4>) {
    let open = |name: &str| BufReader::new(File::open(folder.join(name)).unwrap());
    let rules = classbench::rules(open(name)).unwrap();
    let trace = classbench::trace(open(&format!("{name}_trace"))).unwrap();
    (rules, trace)
}

#[test]
fn real_lists_are_exact() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    if !sys::require::root() {
        return;
    }
    let folder = unpacked(&corpus);
    let space = Space::new();
    let mut xdp = plane(&space);
    for (size, count) in [("1k", 3000), ("10k", 1500), ("100k", 150)] {
        for kind in ["acl1", "fw1", "ipc1"] {
            let name = format!("{kind}_{size}");
            let (rules, trace) = read(folder.path(), &name);
            let step = (trace.len() / count).max(1);
            let keys = trace.into_iter().step_by(step).chain(around(&rules, count));
            check(&space, &mut xdp, rules, &usable(keys));
        }
    }
}

fn udp(source: &str, destination: &str) -> build::Builder {
    let at = |address: &str, port| (address.parse::<std::net::IpAddr>().unwrap(), port).into();
    build::udp(at(source, 4000), at(destination, 53)).macs(SENDER, OURS)
}

#[test]
fn fragments_are_the_kernels_where_rules_look_at_ports() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let mut xdp = plane(&space);
    let by_port = Rule4 {
        destination_ports: 53..=53,
        action: Action::Drop,
        ..Rule4::default()
    };
    let by_protocol = Rule4 {
        protocol: Protocol::exactly(UDP),
        action: Action::Drop,
        ..Rule4::default()
    };
    let whole = udp("198.51.100.1", "203.0.113.9").frame();
    let first = udp("198.51.100.1", "203.0.113.9").fragment(0, true).frame();
    let later = udp("198.51.100.1", "203.0.113.9")
        .fragment(9, false)
        .frame();
    for (rule, of_fragments) in [(by_port, End::Unkeyed), (by_protocol, End::DroppedByRule)] {
        space.run(|| xdp.rules(&u32::set(vec![rule]))).unwrap();
        assert_eq!(run(&space, &xdp, &whole).end, End::DroppedByRule);
        assert_eq!(run(&space, &xdp, &first).end, of_fragments);
        assert_eq!(run(&space, &xdp, &later).end, of_fragments);
    }
    let v6 = udp("2001:db8::1", "2001:db8::2");
    assert_eq!(run(&space, &xdp, &v6.frame()).end, End::Forwarded);
    // Behind extension headers the protocol and its ports are known.
    let rule = Rule {
        destination_ports: 53..=53,
        protocol: Protocol::exactly(UDP),
        action: Action::Drop,
        ..Rule::<u128>::default()
    };
    space.run(|| xdp.rules(&u128::set(vec![rule]))).unwrap();
    let extended = v6.extension(Extension::DestinationOptions(1)).frame();
    assert_eq!(run(&space, &xdp, &extended).end, End::DroppedByRule);
    assert_eq!(run(&space, &xdp, &whole).end, End::Forwarded);
}

#[test]
fn a_drop_wins_over_the_route_but_not_over_this_host() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let mut xdp = plane(&space);
    let local = Forwarding::Punt(router::forward::Punt::Local);
    let unresolved = Forwarding::Punt(router::forward::Punt::Unresolved);
    space.next_hop(&mut xdp, Family::V4, 2, &local);
    space.next_hop(&mut xdp, Family::V4, 3, &unresolved);
    let route = |xdp: &mut Xdp, prefix: &str, number| {
        xdp.route4(prefix.parse().unwrap(), Some(hop(number)))
            .unwrap();
    };
    route(&mut xdp, "192.0.2.1/32", 2);
    route(&mut xdp, "192.0.2.2/32", 3);
    let drop = Rule4 {
        action: Action::Drop,
        ..Rule4::default()
    };
    space.run(|| xdp.rules(&u32::set(vec![drop]))).unwrap();
    for (destination, ttl, end) in [
        ("203.0.113.9", 64, End::DroppedByRule),
        ("203.0.113.9", 1, End::DroppedByRule),
        ("192.0.2.2", 64, End::DroppedByRule),
        ("192.0.2.1", 64, End::Local),
    ] {
        let frame = udp("198.51.100.1", destination).ttl(ttl).frame();
        assert_eq!(run(&space, &xdp, &frame).end, end, "{destination} {ttl}");
    }
    space.run(|| xdp.rules(&RuleSet::default())).unwrap();
    let frame = udp("198.51.100.1", "203.0.113.9").frame();
    assert_eq!(run(&space, &xdp, &frame).end, End::Forwarded);
    assert_eq!(xdp.hits(), [Hits::default(), Hits::default()]);
}
