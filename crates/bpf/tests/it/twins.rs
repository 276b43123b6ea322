//! The shared BPF headers against their Rust twins, on the same frames.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, MapFlags, Object, Program, ProgramInput};
use packet::build::{self, Builder, Checksum, Extension};
use packet::parse::{Family, PacketHeaders, parse};
use packet::{checksum, ethertype, ipv4, pcap, udp};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::common;

/// The kernel does not run programs on shorter frames.
const MIN_FRAME_LEN: usize = 14;

/// The test programs, used by one test at a time: they share the map of answers.
struct Twins(MutexGuard<'static, Option<Object>>);

/// The value that a program wrote to the map, with the offsets of `struct answer`.
struct Answer(Vec<u8>);

impl Answer {
    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn packet(&self) -> &[u8] {
        &self.0[..64]
    }

    fn payload(&self) -> &[u8] {
        &self.0[64..104]
    }

    fn verdict(&self) -> u32 {
        self.word(104)
    }
}

impl Twins {
    fn load() -> Option<Self> {
        static OBJECT: Mutex<Option<Object>> = Mutex::new(None);
        if !sys::require::root() {
            return None;
        }
        let mut object = OBJECT.lock().unwrap_or_else(PoisonError::into_inner);
        object.get_or_insert_with(|| common::load("twins"));
        Some(Self(object))
    }

    fn object(&self) -> &Object {
        self.0.as_ref().unwrap()
    }

    /// Runs a program on a frame, and returns its return value, the changed frame, and its answer.
    fn run(&self, name: &str, frame: &[u8]) -> (u32, Vec<u8>, Answer) {
        let program = self
            .object()
            .progs_mut()
            .find(|program| program.name() == name)
            .unwrap();
        let mut after = vec![0; frame.len() + 256];
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut after),
            ..ProgramInput::default()
        };
        let output = program
            .test_run(input)
            .unwrap_or_else(|error| panic!("{name} on {} bytes: {error}", frame.len()));
        let (verdict, frame) = (output.return_value, output.data.unwrap().to_vec());
        let answers = self
            .object()
            .maps()
            .find(|map| map.name() == "answers")
            .unwrap();
        let answer = answers.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        (verdict, frame, Answer(answer.unwrap().unwrap()))
    }
}

#[test]
fn one_look_of_the_verifier_at_the_parser_is_cheap() {
    let Some(twins) = Twins::load() else { return };
    for name in ["parse", "parse_linear", "sum_udp", "rewrite"] {
        let program = twins
            .object()
            .progs()
            .find(|program| program.name() == name);
        let id = Program::id_from_fd(program.unwrap().as_fd()).unwrap();
        let info = ProgInfoIter::default().find(|info| info.id == id).unwrap();
        // 5 000 at the time of writing. A program may use a million, but what follows the parser is
        // looked at once for each path that leaves it.
        assert!(
            info.verified_insns < 20_000,
            "{name}: {}",
            info.verified_insns
        );
    }
}

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// One builder of every kind, by what makes it special.
fn kinds() -> Vec<Builder> {
    let v4 = || build::udp(at("192.0.2.1:5000"), at("198.51.100.7:5004")).payload([7; 41]);
    let v6 = || build::udp(at("[2001:db8::1]:5000"), at("[2001:db8::2]:5004")).payload([7; 41]);
    let fragment = |offset, more| Extension::Fragment { offset, more };
    vec![
        v4(),
        v4().tos(0xb9)
            .ttl(1)
            .dont_fragment(false)
            .identification(77),
        v4().options(1).vlan(5),
        v4().options(10).tag(ethertype::QINQ, 0x6001).vlan(0x1fff),
        v4().vlan(1).vlan(2).vlan(3),
        v4().fragment(0, true),
        v4().fragment(3, true),
        v4().fragment(9, false).payload([1; 3]),
        v4().padding(20),
        v4().checksum(Checksum::Partial),
        v6(),
        v6().tos(0xff).flow_label(0xfffff).vlan(9),
        v6().extension(Extension::HopByHop(0)),
        v6().extension(Extension::HopByHop(3))
            .extension(Extension::Routing(2)),
        v6().extension(Extension::Authentication(4))
            .extension(fragment(0, false)),
        v6().extension(fragment(0, true))
            .extension(Extension::DestinationOptions(0)),
        v6().extension(Extension::HopByHop(0))
            .extension(fragment(5, true)),
        v6().extension(fragment(5, false))
            .extension(Extension::Routing(255)),
        (0..6).fold(v6(), |chain, _| {
            chain.extension(Extension::DestinationOptions(1))
        }),
        (0..7).fold(v6(), |chain, _| chain.extension(Extension::Routing(0))),
        (0..6).fold(v6().payload([1; 9]), |chain, _| {
            chain.extension(Extension::Routing(60))
        }),
        build::tcp(at("192.0.2.1:1"), at("192.0.2.2:443"), 0x12, 5).payload([0; 5]),
        build::tcp(at("[2001:db8::1]:1"), at("[2001:db8::2]:443"), 0xff, 10),
        build::echo(at("192.0.2.1:0").ip(), at("192.0.2.2:0").ip()).payload([0; 56]),
        build::echo(at("[2001:db8::1]:0").ip(), at("[2001:db8::2]:0").ip()).vlan(3),
        build::other(at("192.0.2.1:0").ip(), at("192.0.2.2:0").ip(), 58),
        build::other(at("[2001:db8::1]:0").ip(), at("[2001:db8::2]:0").ip(), 1).payload([1; 30]),
        build::other(at("192.0.2.1:0").ip(), at("224.0.0.22:0").ip(), 2).payload([1; 8]),
        build::other(at("[2001:db8::1]:0").ip(), at("[2001:db8::2]:0").ip(), 59),
    ]
}

/// `struct packet` as parse.h lays it out.
fn as_struct(parsed: &PacketHeaders) -> Vec<u8> {
    let address = |address: IpAddr| match (parsed.family, address) {
        (None, _) => [0; 16],
        (_, IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        (_, IpAddr::V6(address)) => address.octets(),
    };
    let short = |value: usize| u16::try_from(value).unwrap();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&address(parsed.source));
    bytes.extend_from_slice(&address(parsed.destination));
    bytes.extend_from_slice(&u32::try_from(parsed.ip_length).unwrap().to_ne_bytes());
    for word in [
        parsed.ethertype,
        short(parsed.l3),
        short(parsed.payload),
        short(parsed.l4),
        parsed.vlan_tci[0],
        parsed.vlan_tci[1],
        parsed.source_port,
        parsed.destination_port,
        parsed.udp_length,
    ] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let family = match parsed.family {
        None => 0,
        Some(Family::V4) => 2,
        Some(Family::V6) => 10,
    };
    bytes.extend_from_slice(&[
        parsed.vlan_tags,
        parsed.protocol,
        family,
        parsed.fragment as u8,
        parsed.extensions,
        parsed.ttl,
        parsed.tos,
        parsed.tcp_flags,
        parsed.icmp_type,
        parsed.icmp_code,
    ]);
    bytes
}

/// Both parsers on one frame: the same verdict, and the same fields when it is well-formed.
fn compare(twins: &Twins, program: &str, frame: &[u8]) {
    if frame.len() < MIN_FRAME_LEN {
        return;
    }
    let (_, _, answer) = twins.run(program, frame);
    match parse(frame) {
        Err(malformed) => assert_eq!(
            answer.verdict(),
            malformed as u32,
            "{program}: {malformed:?} in {frame:02x?}"
        ),
        Ok(parsed) => {
            assert_eq!(
                answer.verdict(),
                parsed.verdict as u32,
                "{program}: {parsed:?}"
            );
            assert_eq!(answer.packet(), as_struct(&parsed), "{program}: {parsed:?}");
        }
    }
}

/// Runs a property on 100 cases of each of ten seeds, the same ones every time.
fn for_ten_seeds<S: Strategy>(strategy: &S, property: impl Fn(S::Value)) {
    for seed in 0..10 {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let config = Config {
            failure_persistence: None,
            ..Config::with_cases(100 * sys::require::fuzz())
        };
        TestRunner::new_with_rng(config, rng)
            .run(strategy, |value| {
                property(value);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn every_kind_of_frame_and_every_truncation_parses_alike() {
    let Some(twins) = Twins::load() else { return };
    for frame in kinds().iter().map(Builder::frame) {
        for length in MIN_FRAME_LEN..=frame.len() {
            compare(&twins, "parse", &frame[..length]);
        }
        compare(&twins, "parse_linear", &frame);
    }
}

#[test]
fn frames_with_changed_bytes_parse_alike() {
    let Some(twins) = Twins::load() else { return };
    let frames: Vec<_> = kinds().iter().map(Builder::frame).collect();
    let change = (any::<Index>(), any::<u8>());
    let cases = (any::<Index>(), prop::collection::vec(change, 1..6));
    for_ten_seeds(&cases, |(frame, changes)| {
        let mut frame = frames[frame.index(frames.len())].clone();
        let headers = frame.len().min(90);
        for (at, byte) in changes {
            frame[at.index(headers)] = byte;
        }
        compare(&twins, "parse", &frame);
    });
}

#[test]
fn noise_parses_alike() {
    let Some(twins) = Twins::load() else { return };
    let noise = prop::collection::vec(any::<u8>(), MIN_FRAME_LEN..120);
    let kind = prop::sample::select(vec![0x0800_u16, 0x86dd, 0x8100, 0x88a8]);
    for_ten_seeds(&(noise, kind), |(mut frame, ethertype)| {
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        compare(&twins, "parse", &frame);
    });
}

#[test]
fn frames_of_outside_captures_parse_alike() {
    let Some(twins) = Twins::load() else { return };
    let Some(folder) = sys::require::corpus() else {
        return;
    };
    let mut compared = 0;
    for entry in fs::read_dir(folder.join("pcap")).unwrap() {
        // Other files there are not captures.
        let file = File::open(entry.unwrap().path()).unwrap();
        let Ok(reader) = pcap::Reader::new(file) else {
            continue;
        };
        for packet in reader.map(Result::unwrap).take(400) {
            // The kernel runs frames of up to a page, less what it puts around them.
            if packet.link_type == pcap::ETHERNET && packet.frame.len() < 3000 {
                compare(&twins, "parse", &packet.frame);
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "no captures in {}", folder.display());
}

#[test]
fn histograms_choose_the_same_bucket() {
    let Some(twins) = Twins::load() else { return };
    let compare = |value: u64| {
        let mut frame = [0; 64];
        frame[..8].copy_from_slice(&value.to_ne_bytes());
        let (_, _, answer) = twins.run("find_bucket", &frame);
        assert_eq!(answer.word(108) as usize, stats::bucket(value), "{value}");
    };
    for power in 0..64 {
        for near in [-2_i64, -1, 0, 1, 2] {
            compare((1_u64 << power).wrapping_add_signed(near));
        }
    }
    for_ten_seeds(&any::<u64>(), compare);
}

#[test]
fn a_generated_header_reads_alike() {
    let Some(twins) = Twins::load() else { return };
    let header = packet::payload::Header {
        run: 0x0102_0304,
        flow: 5,
        sequence: 6,
        intended_ns: 7 << 40,
        sent_ns: u64::MAX,
    };
    let mut payload = [0; packet::payload::LEN];
    header.write(&mut payload);
    let (_, _, answer) = twins.run("find_payload", &payload);
    assert_eq!(answer.word(112), 1);
    assert_eq!(answer.payload(), payload);

    let (_, _, answer) = twins.run("find_payload", &payload[..39]);
    assert_eq!(answer.word(112), 0, "one byte short");
    payload[4] ^= 1;
    let (_, _, answer) = twins.run("find_payload", &payload);
    assert_eq!(answer.word(112), 0, "another magic");
}

/// The checksum the BPF side computes for a frame, and whether it holds the present one partial.
fn summed(twins: &Twins, frame: &[u8]) -> (u16, bool) {
    let (verdict, _, answer) = twins.run("sum_udp", frame);
    assert_eq!(verdict, 2, "{frame:02x?}");
    // BPF keeps a checksum as it lies in the packet.
    let check = u16::from_be(u16::try_from(answer.word(116)).unwrap());
    (check, answer.word(120) == 1)
}

fn carried(frame: &[u8]) -> u16 {
    let parsed = parse(frame).unwrap();
    udp::Packet::new_checked(&frame[parsed.l4..])
        .unwrap()
        .checksum()
}

#[test]
fn a_datagram_of_any_length_sums_alike() {
    let Some(twins) = Twins::load() else { return };
    let noise: Vec<u8> = (0..3000_u32)
        .map(|i| ((i * i) >> 3).to_le_bytes()[0])
        .collect();
    for length in (0..70).chain([
        127, 128, 255, 504, 505, 511, 512, 1023, 1024, 1025, 1472, 2559, 3000,
    ]) {
        for (source, destination) in [
            ("192.0.2.1:5000", "198.51.100.7:5004"),
            ("[2001:db8::1]:5000", "[2001:db8::2]:5004"),
        ] {
            let right = build::udp(at(source), at(destination)).payload(&noise[..length]);
            for kind in [Checksum::Right, Checksum::Bad, Checksum::Partial] {
                let (check, partial) = summed(&twins, &right.clone().checksum(kind).frame());
                assert_eq!(check, carried(&right.frame()), "{length} bytes, {kind:?}");
                // A right checksum may look partial, one in 65536; never the other way round.
                assert!(partial || kind != Checksum::Partial, "{length} bytes");
            }
            assert!(!summed(&twins, &right.clone().checksum(Checksum::Absent).frame()).1);
        }
    }
}

#[test]
fn a_sum_that_folds_to_zero_is_sent_as_ffff() {
    let Some(twins) = Twins::load() else { return };
    let datagram = build::udp(at("192.0.2.1:5000"), at("198.51.100.7:5004"));
    // The payload that brings the checksum to zero is the checksum over a zero one.
    let over_zero = carried(&datagram.clone().payload([0, 0]).frame());
    let frame = datagram.payload(over_zero.to_be_bytes()).frame();
    assert_eq!(carried(&frame), 0xffff);
    assert_eq!(summed(&twins, &frame).0, 0xffff);
}

#[test]
fn an_updated_checksum_equals_a_new_one() {
    let Some(twins) = Twins::load() else { return };
    let cases = (
        any::<([u8; 4], u16, [u8; 4], u16)>(),
        1_u8..,
        prop::collection::vec(any::<u8>(), 0..64),
    );
    for_ten_seeds(&cases, |((from, from_port, to, to_port), ttl, payload)| {
        let frame = build::udp((from, from_port).into(), (to, to_port).into())
            .ttl(ttl)
            .payload(payload)
            .frame();
        let (verdict, after, _) = twins.run("rewrite", &frame);
        assert_eq!(verdict, 2);
        let ip = ipv4::Packet::new_checked(&after[14..]).unwrap();
        assert!(ip.verify_checksum());
        assert_eq!(ip.ttl(), ttl - 1);
        let datagram = udp::Packet::new_checked(ip.payload()).unwrap();
        let full = checksum::udp(ip.source().into(), ip.destination().into(), ip.payload());
        assert_eq!(datagram.checksum(), full);
        assert_eq!(datagram.destination_port(), 5004);
    });
}

#[test]
fn an_absent_checksum_stays_absent() {
    let Some(twins) = Twins::load() else { return };
    let frame = build::udp(at("192.0.2.1:1"), at("192.0.2.2:2"))
        .checksum(Checksum::Absent)
        .frame();
    let (_, after, _) = twins.run("rewrite", &frame);
    assert_eq!(carried(&after), 0);
}
