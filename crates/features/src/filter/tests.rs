//! Expressions against packets whose headers are known, and against every kind of wrong one.

use std::net::SocketAddr;

use packet::build::{self, Builder};
use packet::pcap::{ETHERNET, Frame};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{Error, Fate, Rate, Rules, Selection, Tier, Unit, WrongRule};
use crate::dissect::{Packet, Tunnels, dissect};

fn at(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

fn select(filter: &str) -> Result<Selection, WrongRule> {
    Selection::new(Rules {
        filter: Some(filter.to_owned()),
        ..Rules::default()
    })
}

fn packet(bytes: &[u8], time_ns: i64) -> Packet<'_> {
    let frame = Frame {
        timestamp_ns: time_ns,
        original_length: u32::try_from(bytes.len()).expect("short"),
        link_type: ETHERNET,
        bytes,
    };
    dissect(&frame, Tunnels::Outer).expect("a packet")
}

/// A TCP packet from 10.1.2.3:5000 to 192.0.2.2:443, and a UDP one over IPv6 in VLAN 7.
fn samples() -> [Vec<u8>; 2] {
    let tcp = build::tcp(at("10.1.2.3:5000"), at("192.0.2.2:443"), 0x10, 0);
    let udp = build::udp(at("[2001:db8::1]:53"), at("[2001:db8:1::2]:9999")).vlan(7);
    [tcp, udp].map(|packet: Builder| packet.payload([0; 100]).frame())
}

/// Which of the two packets each is true for.
const TRUE_FOR: [(&str, [bool; 2]); 52] = [
    ("ip", [true, false]),
    ("ip6", [false, true]),
    ("tcp", [true, false]),
    ("udp", [false, true]),
    (
        "sctp or icmp or icmp6 or igmp or esp or gre",
        [false, false],
    ),
    ("proto 6", [true, false]),
    ("proto tcp", [true, false]),
    ("ip proto 6 or 17", [true, false]),
    ("ip6 proto 17", [false, true]),
    ("host 10.1.2.3", [true, false]),
    ("10.1.2.3", [true, false]),
    ("src 10.1.2.3", [true, false]),
    ("dst 10.1.2.3", [false, false]),
    ("src host 10.1.2.3 and dst host 192.0.2.2", [true, false]),
    ("src or dst host 192.0.2.2", [true, false]),
    ("src and dst net 0.0.0.0/0", [true, false]),
    ("src and dst net 10/8", [false, false]),
    ("not host 2001:db8::1", [true, false]),
    ("host 10.9.9.9, 10.1.2.3", [true, false]),
    ("net 10.0.0.0/8", [true, false]),
    ("net 10", [true, false]),
    ("src net 2001:db8::/48", [false, true]),
    ("dst net 2001:db8::/48", [false, false]),
    ("net ::/0", [false, true]),
    ("net ::ffff:0:0/96", [false, false]),
    ("net 11/8, 192.0.2.0/24 and tcp", [true, false]),
    ("port 443", [true, false]),
    ("src port 443", [false, false]),
    ("dst port 443", [true, false]),
    ("tcp dst port 443", [true, false]),
    ("udp port 443", [false, false]),
    ("port 22,53,80", [false, true]),
    ("port 22, 443,53", [true, true]),
    ("port 80 or 443", [true, false]),
    ("port (80 or 443)", [true, false]),
    ("tcp port (53 or 80)", [false, false]),
    ("portrange 50-60", [false, true]),
    ("portrange 5000-5000", [true, false]),
    ("vlan", [false, true]),
    ("vlan 7", [false, true]),
    ("vlan 8", [false, false]),
    ("greater 155", [false, true]),
    ("less 154", [true, false]),
    ("!tcp", [false, true]),
    ("not not tcp", [true, false]),
    ("not (tcp or udp)", [false, false]),
    // As in tcpdump, "and" and "or" bind alike and from the left.
    ("tcp or udp and port 53", [false, true]),
    ("tcp or (udp and port 54)", [true, false]),
    ("tcp && port 443 || udp && port 53", [false, true]),
    ("not tcp and port 53", [false, true]),
    ("not port 53 and 443", [true, false]),
    ("((((tcp))))", [true, false]),
];

#[test]
fn expressions_mean_what_they_mean_to_tcpdump() {
    let frames = samples();
    for (text, expected) in TRUE_FOR {
        let selection = select(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        for (frame, expected) in frames.iter().zip(expected) {
            let kept = selection.judge(&packet(frame, 0)) == Fate::Kept;
            assert_eq!(kept, expected, "{text}");
        }
    }
}

/// Where each is wrong, and a word of what is said.
const WRONG: [(&str, usize, &str); 38] = [
    ("", 1, "expected a test"),
    ("   ", 4, "expected a test"),
    ("tcp and", 8, "found the end"),
    ("and tcp", 1, "found \"and\""),
    ("tcp udp", 5, "expected and, or"),
    ("tcp)", 4, "no parenthesis is open"),
    ("(tcp", 5, "parenthesis of column 1"),
    ("()", 2, "expected a test"),
    ("port", 5, "expected a port"),
    ("port http", 6, "expected a port"),
    ("port 65536", 6, "0 to 65535"),
    ("port -1", 6, "expected a port"),
    ("portrange 9-8", 11, "ends before it begins"),
    ("port 22,", 9, "expected a port"),
    ("port 22,,23", 9, "expected a port"),
    ("host example.org", 6, "expected an address"),
    ("host 10.0.0.0/8", 6, "a network: write net"),
    ("net 10.0.0.1/8", 5, "behind its first 8"),
    ("net 10.0.0.0/33", 5, "0 to 32"),
    ("net 2001:db8::/129", 5, "0 to 128"),
    ("net in", 7, "a file's name"),
    ("net in (", 8, "a file's name"),
    ("net in /nonexistent/list", 8, "/nonexistent/list"),
    ("proto 256", 7, "0 to 255"),
    ("src proto 6", 5, "without src and dst"),
    ("ip port 80", 4, "before port"),
    ("tcp host 10.0.0.1", 5, "expected port"),
    ("vlan 4096", 6, "0 to 4095"),
    ("less", 5, "a number of bytes"),
    ("greater 4294967296", 9, "a number of bytes"),
    ("tcp[13] = 2", 1, "bytes cannot be tested"),
    ("arp", 1, "only IP packets"),
    ("inbound", 1, "--direction"),
    ("src and tcp", 9, "dst after src"),
    ("tcp & udp", 5, "expected \"&&\""),
    ("net in 'x", 8, "a closing"),
    ("443", 1, "expected a test"),
    ("tcp and 443", 9, "expected a test"),
];

#[test]
fn wrong_expressions_are_refused_where_they_are_wrong() {
    for (text, column, what) in WRONG {
        match select(text) {
            Err(WrongRule::Filter(error)) => {
                assert_eq!(error.column, column, "{text:?}: {error}");
                assert!(error.what.contains(what), "{text:?}: {error}");
                assert!(!error.what.contains('\n'), "{error}");
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

/// Words of the language, and none.
const WORDS: [&str; 36] = [
    "and",
    "or",
    "not",
    "&&",
    "||",
    "!",
    "(",
    ")",
    ",",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "icmp",
    "host",
    "net",
    "port",
    "portrange",
    "proto",
    "src",
    "dst",
    "vlan",
    "greater",
    "less",
    "in",
    "10/8",
    "10.0.0.1",
    "::1",
    "2001:db8::/32",
    "1-9",
    "443",
    "65536",
    "-",
    "\"x y\"",
    "'",
    "\u{e4}",
];

/// Texts of ten fixed seeds.
fn for_ten_seeds(texts: &impl Strategy<Value = String>, mut take: impl FnMut(&str)) {
    for seed in 0..10 {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        for _ in 0..500 * sys::require::fuzz() {
            take(&texts.new_tree(&mut runner).expect("a text").current());
        }
    }
}

#[test]
fn no_text_is_more_than_refused() {
    let words = prop::sample::select(WORDS.to_vec());
    let words = (prop::collection::vec(words, 0..14), "[ ]?");
    let words = words.prop_map(|(words, between)| words.join(&between));
    let mut good = 0;
    let mut check = |text: &str| match select(text) {
        Ok(_) => good += 1,
        Err(WrongRule::Filter(error)) => {
            let columns = 1..=text.chars().count() + 1;
            assert!(columns.contains(&error.column), "{text:?}: {error}");
            let line = error.to_string();
            assert!(!line.contains('\n') && line.len() < 300, "{line}");
        }
        Err(other) => panic!("{text:?}: {other}"),
    };
    for_ten_seeds(&words, &mut check);
    for_ten_seeds(&".*", &mut check);
    assert!(good > 50, "only {good} texts were expressions");
}

#[test]
fn depth_and_size_are_bounded() {
    let nested = |depth| format!("{}tcp{}", "(".repeat(depth), ")".repeat(depth));
    assert!(select(&nested(64)).is_ok());
    let deep = |text: &str| match select(text) {
        Err(WrongRule::Filter(Error { column, .. })) => column,
        other => panic!("{other:?}"),
    };
    assert_eq!(deep(&nested(65)), 65);
    assert_eq!(deep(&nested(1_000_000)), 65);
    assert_eq!(deep(&"!".repeat(1_000_000)), 65);
    let tests = |count| vec!["port 1"; count].join(" or ");
    assert!(select(&tests(512)).is_ok());
    assert_eq!(deep(&tests(513)), 1 + 512 * 10);
    assert!(select(&format!("port {}", vec!["1"; 65_536].join(","))).is_ok());
    assert!(select(&format!("port {}", vec!["1"; 65_537].join(","))).is_err());
}

#[test]
fn files_name_their_wrong_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a list.txt");
    let filter = format!("tcp and src net in \"{}\"", path.display());
    std::fs::write(&path, "# ours\n10/8 # all\n\n  2001:db8::1\r\n").expect("written");
    let frames = samples();
    let selection = select(&filter).expect("a filter");
    let fates = [0, 1].map(|frame| selection.judge(&packet(&frames[frame], 0)));
    assert_eq!(fates, [Fate::Kept, Fate::Filtered]);
    for (text, what) in [
        ("10/8\n10/8/8\n", "line 2: expected 0 to 32 bits"),
        ("\u{1}", "line 1: expected a network"),
    ] {
        std::fs::write(&path, text).expect("written");
        let error = select(&filter).expect_err("a wrong file").to_string();
        assert!(error.contains("column 20:"), "{error}");
        assert!(error.contains(what), "{error}");
    }
    std::fs::write(&path, b"\xff\n").expect("written");
    assert!(select(&filter).is_err());
    std::fs::write(&path, "").expect("written");
    assert!(select(&filter).is_ok(), "an empty list has no network");
    let folder = format!("net in {}", folder.path().display());
    assert!(select(&folder).is_err());
}

/// A flow of its own for each number, and its way back.
fn flow(number: u32) -> [Vec<u8>; 2] {
    let [_, a, b, c] = number.to_be_bytes();
    let client = SocketAddr::from(([10, a, b, c], 40_000 + u16::from(c)));
    let server = at("192.0.2.2:443");
    [(client, server), (server, client)].map(|(from, to)| build::udp(from, to).frame())
}

fn sampling(unit: Unit, rate: &str, seed: u64) -> Selection {
    let rules = Rules {
        rate: rate.parse().expect("a rate"),
        unit,
        seed,
        ..Rules::default()
    };
    Selection::new(rules).expect("rules")
}

fn is_kept(selection: &Selection, frame: &[u8], time_ns: i64) -> bool {
    selection.judge(&packet(frame, time_ns)) == Fate::Kept
}

#[test]
fn flows_are_kept_whole_and_as_many_as_asked_for() {
    const FLOWS: u32 = 100_000;
    let sampling = [
        sampling(Unit::Flows, "1/100", 0),
        sampling(Unit::Flows, "1/10", 0),
        sampling(Unit::Flows, "1/10", 1),
    ];
    let mut kept = [0_u32; 3];
    let mut both_seeds = 0_u32;
    for number in 0..FLOWS {
        let [there, back] = flow(number);
        let fates = [0, 1, 2].map(|index| {
            let keeps = is_kept(&sampling[index], &there, number.into());
            assert_eq!(keeps, is_kept(&sampling[index], &back, 0));
            kept[index] += u32::from(keeps);
            keeps
        });
        assert!(
            !fates[0] || fates[1],
            "a higher rate keeps the same and more"
        );
        both_seeds += u32::from(fates[1] && fates[2]);
    }
    // Within five standard deviations of a binomial draw.
    assert!(kept[0].abs_diff(1000) < 160, "{kept:?}");
    assert!(kept[1].abs_diff(10_000) < 475, "{kept:?}");
    assert!(kept[2].abs_diff(10_000) < 475, "{kept:?}");
    assert!(both_seeds.abs_diff(1000) < 160, "{both_seeds}");
}

#[test]
fn packets_are_chosen_one_by_one() {
    let sampling = sampling(Unit::Packets, "1/8", 3);
    let [there, _] = flow(9);
    // One a millisecond: what is periodic is not followed.
    let kept: Vec<i64> = (0..80_000)
        .filter(|time| is_kept(&sampling, &there, time * 1_000_000))
        .collect();
    assert!(kept.len().abs_diff(10_000) < 470, "{}", kept.len());
    // Gaps of a memoryless choice: one in eight is 1, and they have no upper end at 8.
    let next = kept
        .windows(2)
        .filter(|pair| pair[1] - pair[0] == 1)
        .count();
    assert!(next.abs_diff(kept.len() / 8) < 200, "{next}");
    assert!(kept.windows(2).any(|pair| pair[1] - pair[0] > 40));
}

#[test]
fn the_first_tier_that_is_true_decides_the_rate() {
    let tier = |expression: &str, rate: &str| Tier {
        expression: expression.to_owned(),
        rate: rate.parse().expect("a rate"),
    };
    let selection = Selection::new(Rules {
        filter: Some("not port 9999".to_owned()),
        tiers: vec![tier("net 10/8", "1/1"), tier("tcp", "1/1000000000")],
        rate: "1/1000000000".parse().expect("a rate"),
        ..Rules::default()
    });
    let selection = selection.expect("rules");
    let [tcp, udp] = samples();
    assert_eq!(selection.judge(&packet(&tcp, 0)), Fate::Kept);
    assert_eq!(selection.judge(&packet(&udp, 0)), Fate::Filtered);
    let other = build::tcp(at("11.0.0.1:1"), at("11.0.0.2:2"), 0x10, 0).frame();
    assert_eq!(selection.judge(&packet(&other, 0)), Fate::SampledOut);
    let said = selection.metadata();
    assert_eq!(said[0], ("lowroad.filter".into(), "not port 9999".into()));
    assert_eq!(
        said[1].1,
        "1/1 where net 10/8; 1/1000000000 where tcp; 1/1000000000 of flows, seed 0"
    );
}

#[test]
fn rules_that_leave_nothing_out_are_none() {
    assert_eq!(Selection::new(Rules::default()), Ok(Selection::default()));
    assert_eq!(Rate::ALL, "1/1".parse().expect("a rate"));
    let tiers = vec![
        Tier {
            expression: "tcp".to_owned(),
            rate: Rate::ALL
        };
        16
    ];
    let rules = Rules {
        tiers,
        ..Rules::default()
    };
    assert_eq!(Selection::new(rules), Err(WrongRule::TooManyTiers));
}
