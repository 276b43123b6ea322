//! The corpus beside tshark; its fingerprints, which tshark tells since 4.2, also beside a list.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use features::flow::{Flow, Timers};
use features::payload::dns;
use features::payload::tls::{ClientHello, Search};
use features::{Extractor, Options};
use packet::parse::{PacketHeaders, Verdict, parse};
use packet::pcap::Reader;
use packet::{protocol, tcp};

use super::tshark;

/// What Wireshark 4.4.18 says of files of nDPI's tests: fingerprint and number of the hellos that
/// streams begin with.
const FINGERPRINTS: &[(&str, &[(&str, usize)])] = &[
    (
        "ntop_nDPI__1kxun.pcap",
        &[
            ("t12d370400_07a749158664_e64f6000bf4d", 2),
            ("t12d370500_07a749158664_d075105c1994", 2),
        ],
    ),
    (
        "ntop_nDPI__alexa-app.pcapng",
        &[
            ("t10i140200_37d7d24289bf_33a13ba74d1c", 4),
            ("t12d150900_f0daf39aad75_e69ac49eb88f", 1),
            ("t12d1510h2_f0daf39aad75_e69ac49eb88f", 73),
            ("t12d1511h2_f0daf39aad75_7ed7223c468c", 2),
            ("t12d200700_93851ff8129a_036209cd1ead", 1),
            ("t12d200900_93851ff8129a_f88f2b2eb673", 1),
            ("t12d220500_5fd681855ab9_c70a3c84db07", 4),
            ("t12i220300_5fd681855ab9_1ea9011b3dfa", 2),
        ],
    ),
    (
        // On port 6888, by which tshark takes it for BitTorrent.
        "ntop_nDPI__gnutella.pcap",
        &[("t12i700800_738c12401e81_7448b1316cd7", 1)],
    ),
    (
        "ntop_nDPI__netflix.pcap",
        &[
            ("t12d190700_b5dc49c6fcca_3304d8368043", 6),
            ("t12d1909h2_b5dc49c6fcca_2cdefc264be7", 6),
            ("t12d1909s1_b5dc49c6fcca_2cdefc264be7", 1),
            ("t12d1910h2_b5dc49c6fcca_f44caba5725b", 1),
            ("t12d910600_383454ac02f4_8587f467d9ea", 6),
        ],
    ),
    (
        "ntop_nDPI__opera-vpn.pcapng",
        &[
            ("t13d151400_8daaf6152771_de4a06bb82e3", 1),
            ("t13d1516h2_8daaf6152771_e5627efa2ab1", 60),
        ],
    ),
    (
        "ntop_nDPI__teams.pcap",
        &[
            ("t12d1311h2_8b80da21ef18_77989cba1f4a", 11),
            ("t12d1312h2_8b80da21ef18_b00751acaffa", 3),
            ("t12d150700_0707305c9f76_0f3b2bcde21d", 8),
            ("t12d2010h2_2a284e3b0c56_f05fdf8c38a9", 5),
            ("t12d220700_0d4ca5d4ec72_3304d8368043", 9),
            ("t13d5713h2_131602cb7446_e802cdec6a7f", 2),
        ],
    ),
    (
        "ntop_nDPI__tor.pcap",
        &[("t10d360300_77f462745360_33a13ba74d1c", 7)],
    ),
    (
        "ntop_nDPI__wechat.pcap",
        &[
            ("t12d1510h2_f0daf39aad75_e69ac49eb88f", 1),
            ("t12d1511h2_f0daf39aad75_eb7c9aabf852", 26),
            ("t12d1512h2_f0daf39aad75_1c0c7ba38891", 1),
        ],
    ),
];

const SYN: u8 = 2;

type Direction = (SocketAddr, SocketAddr);

/// The captures that the folder has, by name.
pub(crate) fn captures() -> Option<Vec<PathBuf>> {
    let folder = sys::require::corpus()?.join("pcap");
    let files = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut captures: Vec<_> = files
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "pcap" || end == "pcapng")
        })
        .collect();
    captures.sort();
    Some(captures)
}

/// Every frame with a transport header, with its number from 1.
fn each_packet(path: &Path, mut look: impl FnMut(usize, &PacketHeaders, &[u8])) {
    let reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    for (number, captured) in (1..).zip(reader) {
        let Ok(captured) = captured else { break };
        match parse(&captured.frame) {
            Ok(parsed) if parsed.verdict == Verdict::Complete => {
                look(number, &parsed, &captured.frame);
            }
            _ => {}
        }
    }
}

fn ends(parsed: &PacketHeaders) -> Direction {
    (
        (parsed.source, parsed.source_port).into(),
        (parsed.destination, parsed.destination_port).into(),
    )
}

/// The hellos that directions begin with, by the number of the frame that completed them.
pub(crate) fn hellos(path: &Path) -> BTreeMap<usize, ClientHello> {
    let mut found = BTreeMap::new();
    let mut searches: HashMap<Direction, (Option<u32>, Search)> = HashMap::new();
    each_packet(path, |number, parsed, frame| {
        if parsed.protocol != protocol::TCP {
            return;
        }
        let end = parsed.l3 + parsed.ip_length;
        let segment = tcp::Packet::new_checked(&frame[parsed.l4..end]).unwrap();
        let (first, search) = searches.entry(ends(parsed)).or_default();
        if segment.flags() & SYN != 0 {
            (*first, *search) = (Some(segment.sequence().wrapping_add(1)), Search::default());
        }
        let answer = search.feed(*first, segment.sequence(), segment.payload());
        if let Some(Ok(hello)) = answer {
            found.insert(number, hello);
        }
    });
    found
}

/// The names in datagrams, by the frame's number.
fn names(path: &Path) -> BTreeMap<usize, String> {
    let mut found = BTreeMap::new();
    each_packet(path, |number, parsed, frame| {
        if parsed.protocol == protocol::UDP {
            let end = parsed.l4 + usize::from(parsed.udp_length);
            let ports = [parsed.source_port, parsed.destination_port];
            let name = dns::over_udp(ports, &frame[parsed.payload..end]);
            found.extend(name.map(|name| (number, name)));
        }
    });
    found
}

fn tally(items: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_insert(0) += 1;
    }
    counts
}

/// The capture's flows, with timeouts that tell connections apart as tshark does: by TCP alone.
pub(crate) fn flows(path: &Path) -> Vec<Flow> {
    let options = Options {
        timers: Timers {
            idle_ns: i64::MAX,
            active_ns: i64::MAX,
            ..Timers::default()
        },
        ..Options::default()
    };
    let mut flows = Vec::new();
    let mut extractor = Extractor::new(&options, |flow| flows.push(*flow));
    for captured in Reader::new(BufReader::new(File::open(path).unwrap())).unwrap() {
        extractor.frame(&captured.unwrap().as_frame());
    }
    extractor.finish();
    flows
}

#[test]
fn fingerprints_are_those_of_the_list() {
    let Some(captures) = captures() else { return };
    for path in captures {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((_, known)) = FINGERPRINTS.iter().find(|(file, _)| *file == name) else {
            continue;
        };
        let known = known
            .iter()
            .map(|(ja4, count)| ((*ja4).to_owned(), *count))
            .collect();
        let streams = hellos(&path).into_values().map(|hello| hello.ja4);
        assert_eq!(tally(streams), known, "{name}");
        let flows = flows(&path).into_iter();
        let of_flows = flows.filter_map(|flow| flow.contents.hello().cloned());
        assert_eq!(tally(of_flows.map(|hello| hello.ja4)), known, "{name}");
    }
}

#[test]
fn server_names_and_fingerprints_are_tshark_s() {
    let (Some(captures), true) = (captures(), tshark::present()) else {
        return;
    };
    for path in captures {
        let ours = hellos(&path);
        let names = ours
            .iter()
            .map(|(frame, hello)| (*frame, hello.sni.clone().unwrap_or_default()));
        let theirs = tshark::of_hellos(&path, "tls.handshake.extensions_server_name");
        assert_eq!(Some(names.collect()), theirs, "{}", path.display());
        if let Some(theirs) = tshark::of_hellos(&path, "tls.handshake.ja4") {
            let ours = ours.into_iter().map(|(frame, hello)| (frame, hello.ja4));
            assert_eq!(
                ours.collect::<BTreeMap<_, _>>(),
                theirs,
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn dns_names_are_tshark_s() {
    let (Some(captures), true) = (captures(), tshark::present()) else {
        return;
    };
    for path in captures {
        let theirs = tshark::dns_names(&path);
        assert_eq!(names(&path), theirs, "{}", path.display());
        let flows = flows(&path);
        for name in flows.iter().filter_map(|flow| flow.contents.dns_name()) {
            assert!(theirs.values().any(|theirs| theirs == name), "{name}");
        }
    }
}
