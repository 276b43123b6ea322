//! Batches of the CPU tables against what the definitions say of each packet.

use std::fs;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use acl::{Action, Key4, Key6, Rule, Rule4, Rule6, linear};
use lpm::{Address, Layout4, Layout6, NextHop, Prefix, Prefix4, Prefix6, Simd};
use packet::build;
use packet::parse::{Family, Fragment, Verdict as Reached, parse};
use packet::pcap::{ETHERNET, Reader};
use router::cpu::{Lookup, Options, Tables};
use router::engine::{
    Answers, Contents, Counters, Decision, Engine, Function, Headers, KeyError, Processor, Verdict,
};
use router::forward::{self, Forwarding, Plane};
use router::random::Random;
use router::rules::RuleSet;

const BATCHES: [usize; 3] = [32, 255, 4096];

/// A packet's key, found the long way.
enum PacketKey {
    V4(Key4),
    V6(Key6),
    None(KeyError),
}

fn packet_key(frame: &[u8]) -> PacketKey {
    let Ok(parsed) = parse(frame) else {
        return PacketKey::None(KeyError::Malformed);
    };
    match parsed.verdict {
        Reached::NotIp | Reached::TooManyTags => return PacketKey::None(KeyError::NotIp),
        Reached::TooManyExtensions => return PacketKey::None(KeyError::Extensions),
        _ if parsed.fragment != Fragment::None => return PacketKey::None(KeyError::Fragment),
        _ if parsed.extensions > 0 => return PacketKey::None(KeyError::Extensions),
        _ => {}
    }
    if parsed.family == Some(Family::V4) && frame[parsed.l3] & 0xf > 5 {
        return PacketKey::None(KeyError::Options);
    }
    let at = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let ports = match parsed.protocol {
        6 | 17 => (at(parsed.l4), at(parsed.l4 + 2)),
        33 | 132 | 136 if parsed.ip_length - (parsed.l4 - parsed.l3) < 4 => {
            return PacketKey::None(KeyError::Malformed);
        }
        33 | 132 | 136 => (at(parsed.l4), at(parsed.l4 + 2)),
        _ => (0, 0),
    };
    match (parsed.source, parsed.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            PacketKey::V4(Key4::new(from.into(), to.into(), ports, parsed.protocol))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            PacketKey::V6(Key6::new(from.into(), to.into(), ports, parsed.protocol))
        }
        _ => panic!("two families in one packet"),
    }
}

type Routes<A> = Vec<(Prefix<A>, NextHop)>;

/// Tables, and the lists that they were made from.
struct TableLists {
    v4: Routes<u32>,
    v6: Routes<u128>,
    rules: RuleSet,
}

impl TableLists {
    /// Routes and rules that are about these packets, nested and overlapping.
    fn about(frames: &[Vec<u8>], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut lists = Self {
            v4: Vec::new(),
            v6: Vec::new(),
            rules: RuleSet::default(),
        };
        for _ in 0..150 {
            match packet_key(&frames[random.index(frames.len())]) {
                PacketKey::V4(key) => {
                    route(&mut lists.v4, key.destination(), &mut random);
                    let rule = rule4(&key, &mut random);
                    lists.rules.v4.push(rule);
                }
                PacketKey::V6(key) => {
                    route(&mut lists.v6, key.destination(), &mut random);
                    let rule = rule6(&key, &mut random);
                    lists.rules.v6.push(rule);
                }
                PacketKey::None(_) => {}
            }
        }
        lists
    }

    fn contents(&self) -> Contents {
        Contents {
            v4: self.v4.iter().copied().collect(),
            v6: self.v6.iter().copied().collect(),
            rules: self.rules.clone(),
        }
    }

    /// What becomes of a packet, by the definitions.
    fn expected(&self, function: Function, frame: &[u8]) -> Decision {
        let (action, hop) = match packet_key(frame) {
            PacketKey::V4(key) => (
                action(&self.rules.v4, linear(&self.rules.v4, &key)),
                longest(&self.v4, key.destination()),
            ),
            PacketKey::V6(key) => (
                action(&self.rules.v6, linear(&self.rules.v6, &key)),
                longest(&self.v6, key.destination()),
            ),
            PacketKey::None(_) => return Decision::new(Verdict::Punt, 0),
        };
        match function {
            Function::Acl => match action {
                Action::Accept => Decision::new(Verdict::Forward, 0),
                Action::Drop => Decision::new(Verdict::Drop, 0),
                Action::Punt => Decision::new(Verdict::Punt, 0),
            },
            Function::Both if action == Action::Drop => Decision::new(Verdict::Drop, hop),
            Function::Both if action == Action::Punt => Decision::new(Verdict::Punt, hop),
            _ if hop == 0 => Decision::new(Verdict::NoRoute, 0),
            _ => Decision::new(Verdict::Forward, hop),
        }
    }
}

fn route<A: Address>(routes: &mut Routes<A>, address: A, random: &mut Random) {
    let len = u8::try_from(random.index(usize::from(A::BITS) + 1)).unwrap();
    let prefix = Prefix::containing(address, len).unwrap();
    let hop = NextHop::new(u16::try_from(1 + random.index(400)).unwrap()).unwrap();
    routes.retain(|(other, _)| *other != prefix);
    routes.push((prefix, hop));
}

fn longest<A: Address>(routes: &Routes<A>, address: A) -> u16 {
    let holding = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    let longest = holding.max_by_key(|(prefix, _)| prefix.len());
    longest.map_or(0, |(_, hop)| hop.get())
}

fn action<A: acl::Address>(rules: &[Rule<A>], first: Option<usize>) -> Action {
    first.map_or(Action::Accept, |at| rules[at].action)
}

fn rule4(key: &Key4, random: &mut Random) -> Rule4 {
    rule(key, random, 33)
}

fn rule6(key: &Key6, random: &mut Random) -> Rule6 {
    rule(key, random, 129)
}

/// A rule that this key falls under.
fn rule<A: acl::Address>(key: &acl::Key<A>, random: &mut Random, lengths: usize) -> Rule<A> {
    let mut prefix = |address| {
        let length = u8::try_from(random.index(lengths)).unwrap();
        Prefix::containing(address, length).unwrap()
    };
    let (source, destination) = (prefix(key.source()), prefix(key.destination()));
    let destination_ports = match random.index(3) {
        0 => acl::ANY_PORT,
        1 => key.destination_port()..=key.destination_port(),
        _ => key.destination_port() / 2..=key.destination_port(),
    };
    Rule {
        source,
        destination,
        destination_ports,
        protocol: match random.index(2) {
            0 => acl::Protocol::ANY,
            _ => acl::Protocol::exactly(key.protocol),
        },
        action: [Action::Accept, Action::Drop, Action::Punt][random.index(3)],
        ..Rule::default()
    }
}

/// Decisions about frames, batch by batch.
fn decide(lookup: &mut Lookup, frames: &[Vec<u8>], batch: usize) -> (Vec<Decision>, Counters) {
    let mut headers = Headers::new(lookup.function(), batch);
    let (mut answers, mut decisions) = (Answers::default(), Vec::new());
    let (mut all, mut counters) = (Vec::new(), Counters::default());
    for batch in frames.chunks(batch) {
        headers.clear();
        for frame in batch {
            headers.push(frame);
        }
        lookup.process_batch(&headers, &mut answers).unwrap();
        headers.scatter(&answers, &mut decisions, &mut counters);
        all.extend_from_slice(&decisions);
    }
    (all, counters)
}

fn check(frames: &[Vec<u8>], lists: &TableLists, options: &Options) {
    let tables = Tables::setup(lists.contents(), options).unwrap();
    for function in Function::ALL {
        let mut lookup = tables.processor(function).unwrap();
        let (first, counters) = decide(&mut lookup, frames, BATCHES[0]);
        for (frame, decision) in frames.iter().zip(&first) {
            let expected = lists.expected(function, frame);
            assert_eq!(*decision, expected, "{function} {options:?}: {frame:02x?}");
        }
        assert_eq!(counters.packets, frames.len() as u64);
        let sum: u64 = counters.verdicts().map(|(_, packets)| packets).sum();
        assert_eq!(sum, counters.packets, "{function}");
        let mut unkeyed = [0; KeyError::ALL.len()];
        for frame in frames {
            if let PacketKey::None(why) = packet_key(frame) {
                unkeyed[why as usize] += 1;
            }
        }
        assert_eq!(counters.unkeyed, unkeyed);
        for batch in &BATCHES[1..] {
            let again = decide(&mut lookup, frames, *batch);
            assert_eq!(again, (first.clone(), counters), "{function} by {batch}");
        }
    }
}

fn each_engine(mut test: impl FnMut(Options)) {
    for layout4 in [Layout4::Mixed, Layout4::Words] {
        for simd in Simd::available() {
            for layout6 in Layout6::ALL {
                test(Options {
                    layout4,
                    layout6,
                    simd,
                    ..Options::default()
                });
            }
        }
    }
}

/// Packets of every sort, by our own builder.
fn all_sorts() -> Vec<Vec<u8>> {
    use packet::build::Extension;
    let v4 = "192.0.2.7:5000".parse().unwrap();
    let to4 = "198.51.100.9:53".parse().unwrap();
    let v6 = "[2001:db8::7]:5000".parse().unwrap();
    let to6 = "[2001:db8:1::9]:53".parse().unwrap();
    let mut frames = Vec::new();
    for (from, to) in [(v4, to4), (to4, v4), (v6, to6), (to6, v6)] {
        let udp = build::udp(from, to).payload([1, 2, 3]);
        frames.extend([
            udp.frame(),
            udp.clone().vlan(7).frame(),
            udp.clone().tag(0x88a8, 5).vlan(7).frame(),
            udp.clone().vlan(5).vlan(6).vlan(7).frame(),
            udp.clone().padding(9).frame(),
            build::tcp(from, to, 2, 0).frame(),
            build::tcp(from, to, 2, 3).frame(),
            build::echo(from.ip(), to.ip()).frame(),
        ]);
        for protocol in [33, 47, 132, 136] {
            let other = build::other(from.ip(), to.ip(), protocol);
            frames.extend([
                other.clone().payload([0, 80, 0, 53, 9]).frame(),
                other.payload([0, 80]).frame(),
            ]);
        }
        if from.is_ipv4() {
            frames.extend([
                udp.clone().options(2).frame(),
                udp.clone().fragment(0, true).frame(),
                udp.clone().fragment(185, false).frame(),
            ]);
        } else {
            frames.extend([
                udp.clone().extension(Extension::HopByHop(0)).frame(),
                udp.clone().extension(Extension::Routing(1)).frame(),
                udp.clone()
                    .extension(Extension::Fragment {
                        offset: 0,
                        more: true,
                    })
                    .frame(),
            ]);
        }
    }
    let whole = frames.clone();
    for frame in &whole {
        // Cut off anywhere, and with a flipped bit anywhere in the headers.
        frames.extend((0..frame.len()).map(|end| frame[..end].to_vec()));
        for bit in 12 * 8..frame.len().min(62) * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            frames.push(flipped);
        }
    }
    frames
}

#[test]
fn packets_of_every_sort_meet_what_the_definitions_say() {
    let frames = all_sorts();
    let lists = TableLists::about(&frames, 3);
    assert!(lists.rules.v4.len() > 10 && lists.rules.v6.len() > 10);
    each_engine(|options| check(&frames, &lists, &options));
    let mut headers = Headers::new(Function::Both, frames.len());
    let mut counters = Counters::default();
    frames.iter().for_each(|frame| headers.push(frame));
    let (v4, v6) = headers.keyed();
    let answers = Answers {
        v4: vec![Decision::new(Verdict::Forward, 1); v4],
        v6: vec![Decision::new(Verdict::Forward, 1); v6],
    };
    headers.scatter(&answers, &mut Vec::new(), &mut counters);
    for (reason, packets) in KeyError::ALL.into_iter().zip(counters.unkeyed) {
        assert!(packets > 0, "no packet is {reason}");
    }
}

#[test]
fn packets_of_real_captures_meet_what_the_definitions_say() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let mut captures: Vec<_> = fs::read_dir(corpus.join("pcap"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".pcap"))
        .collect();
    captures.sort();
    assert!(captures.len() > 20);
    for (seed, capture) in captures.iter().enumerate() {
        let mut frames = Vec::new();
        let mut reader = Reader::new(fs::File::open(capture).unwrap()).unwrap();
        while let Some(frame) = reader.read().unwrap() {
            if frame.link_type == ETHERNET && frames.len() < 2000 {
                frames.push(frame.bytes.to_vec());
            }
        }
        if frames.is_empty() {
            continue;
        }
        let lists = TableLists::about(&frames, seed as u64);
        let options = Options {
            simd: Simd::widest(),
            ..Options::default()
        };
        check(&frames, &lists, &options);
    }
}

#[test]
fn threads_decide_as_one_does() {
    let frames = all_sorts();
    let lists = TableLists::about(&frames, 5);
    let tables = Tables::setup(lists.contents(), &Options::default()).unwrap();
    let lookup = tables.processor(Function::Both).unwrap();
    let (expected, _) = decide(&mut lookup.clone(), &frames, 256);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (mut lookup, frames, expected) = (lookup.clone(), &frames, &expected);
            scope.spawn(move || assert_eq!(&decide(&mut lookup, frames, 256).0, expected));
        }
    });
}

/// A number means another next hop after each of many changes, and its prefix another number: the
/// meaning that a batch finds belongs to the numbers that it found.
#[test]
fn numbers_and_their_meanings_belong_together() {
    let prefix: Prefix4 = "192.0.2.0/24".parse().unwrap();
    let hop = |number| NextHop::new(number).unwrap();
    let device = |ifindex| {
        Forwarding::Neighbour(forward::Adjacency {
            ifindex,
            source: [2; 6],
            destination: [4; 6],
            vlan: None,
            mtu: 1500,
        })
    };
    let mut tables = Tables::setup(Contents::default(), &Options::default()).unwrap();
    let family = forward::Family::V4;
    tables.next_hop(family, hop(1), &device(1)).unwrap();
    tables.route4(prefix, Some(hop(1))).unwrap();
    let mut lookup = tables.processor(Function::Lpm).unwrap();
    let stop = AtomicBool::new(false);
    let frame = build::udp(
        "198.51.100.1:1".parse().unwrap(),
        "192.0.2.1:2".parse().unwrap(),
    )
    .frame();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut headers = Headers::new(Function::Lpm, 1);
            headers.push(&frame);
            let mut answers = Answers::default();
            while !stop.load(Ordering::Relaxed) {
                lookup.process_batch(&headers, &mut answers).unwrap();
                let number = answers.v4[0].hop();
                // Even devices were never anybody's while number 1 or 2 was the route's.
                let meaning = lookup.hops().get(family, number);
                let Forwarding::Neighbour(to) = meaning else {
                    panic!("{number} means {meaning:?}");
                };
                assert_eq!(to.ifindex % 2, 1, "number {number} means another next hop");
            }
        });
        for round in 0..20_000_u32 {
            let (old, new) = if round % 2 == 0 { (1, 2) } else { (2, 1) };
            tables.next_hop(family, hop(new), &device(1)).unwrap();
            tables.route4(prefix, Some(hop(new))).unwrap();
            tables.next_hop(family, hop(old), &device(2)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn routes_and_rules_change_while_lookups_run() {
    let mut tables = Tables::setup(Contents::default(), &Options::default()).unwrap();
    let mut lookup = tables.processor(Function::Both).unwrap();
    let frames = [
        build::udp(
            "198.51.100.1:1".parse().unwrap(),
            "192.0.2.1:2".parse().unwrap(),
        )
        .frame(),
        build::udp(
            "[2001:db8::1]:1".parse().unwrap(),
            "[2001:db8::2]:2".parse().unwrap(),
        )
        .frame(),
    ];
    let mut seen = || decide(&mut lookup, &frames, 32).0;
    let none = Decision::new(Verdict::NoRoute, 0);
    assert_eq!(seen(), [none, none]);
    let hop = NextHop::new(300);
    tables.route4("192.0.2.0/25".parse().unwrap(), hop).unwrap();
    tables
        .route6("2001:db8::2/128".parse::<Prefix6>().unwrap(), hop)
        .unwrap();
    let forward = Decision::new(Verdict::Forward, 300);
    assert_eq!(seen(), [forward, forward]);
    let drop_all = RuleSet {
        v4: vec![Rule4 {
            action: Action::Drop,
            ..Rule4::default()
        }],
        ..RuleSet::default()
    };
    tables.rules(&drop_all).unwrap();
    let dropped = Decision::new(Verdict::Drop, 300);
    assert_eq!(seen(), [dropped, forward]);
    tables.rules(&RuleSet::default()).unwrap();
    tables
        .route4("192.0.2.0/25".parse().unwrap(), None)
        .unwrap();
    assert_eq!(seen(), [none, forward]);
}

#[test]
fn what_the_tables_or_the_machine_do_not_hold_is_refused() {
    let contents = Contents {
        v4: [(Prefix4::DEFAULT, NextHop::new(255).unwrap())]
            .into_iter()
            .collect(),
        ..Contents::default()
    };
    let options = Options {
        layout4: Layout4::Bytes,
        ..Options::default()
    };
    let error = Tables::setup(contents, &options).unwrap_err();
    assert!(error.to_string().contains("Layout4::Mixed"), "{error}");
}
