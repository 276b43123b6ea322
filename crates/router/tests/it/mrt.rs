//! MRT dumps: which path is taken, and what broken ones are told.

use std::net::IpAddr;

use router::routes::{Format, Options, PeerChoice, read};

use crate::common::mrt::{Dump, Path, old_path, record};
use crate::common::{import, refusal, written};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Three peers; what each route shows is said by its test.
fn dump() -> Vec<u8> {
    let mut bytes = Vec::new();
    let peers = [
        (address("192.0.2.1"), 64501),
        (address("192.0.2.2"), 4_200_000_000),
        (address("2001:db8::3"), 64503),
    ];
    let mut dump = Dump::new(&mut bytes, &peers).unwrap();
    let path = |peer, ases, next_hop| Path {
        peer,
        ases,
        next_hop: address(next_hop),
    };
    let long = path(0, &[64501, 1, 2], "198.51.100.1");
    let short = path(1, &[4_200_000_000, 2], "198.51.100.2");
    let v6 = path(2, &[64503], "2001:db8::9");
    dump.route(address("10.0.0.0"), 8, &[long, short], false)
        .unwrap();
    dump.route(
        address("0.0.0.0"),
        0,
        &[path(0, &[1], "198.51.100.1")],
        false,
    )
    .unwrap();
    dump.route(address("2001:db8::"), 32, &[v6], false).unwrap();
    let paths = [
        path(1, &[1, 2], "198.51.100.3"),
        path(1, &[1], "198.51.100.4"),
    ];
    dump.route(address("10.1.2.3"), 32, &paths, true).unwrap();
    bytes
}

#[test]
fn the_shortest_path_is_taken_and_whose_it_is_is_said() {
    let imported = import(dump());
    assert_eq!(imported.report.format, Format::Mrt);
    assert_eq!(
        written(&imported),
        [
            "0.0.0.0/0 via 198.51.100.1",
            "10.0.0.0/8 via 198.51.100.2",
            "10.1.2.3/32 via 198.51.100.4",
            "2001:db8::/32 via 2001:db8::9",
        ]
    );
    let taken: Vec<u64> = imported
        .report
        .peers
        .iter()
        .map(|peer| peer.taken)
        .collect();
    assert_eq!(taken, [1, 2, 1]);
}

#[test]
fn a_peer_can_be_named() {
    let options = |peer| Options {
        peer,
        ..Options::default()
    };
    let by_address = options(PeerChoice::Address(address("192.0.2.1")));
    let imported = read("test", dump().as_slice(), &by_address).unwrap();
    assert_eq!(
        written(&imported),
        ["0.0.0.0/0 via 198.51.100.1", "10.0.0.0/8 via 198.51.100.1"]
    );
    let left_out = &imported.report.left_out;
    assert_eq!(
        left_out[0].why,
        "a prefix without a path of the peer asked for"
    );
    assert_eq!(left_out[0].count, 2);
    let by_as = options(PeerChoice::As(64503));
    assert_eq!(
        read("test", dump().as_slice(), &by_as)
            .unwrap()
            .routes
            .len(),
        1
    );
    let error = read("test", dump().as_slice(), &options(PeerChoice::As(1))).unwrap_err();
    let expected = "no such peer in the dump; its peers: 192.0.2.1 (AS 64501), 192.0.2.2 (AS 4200000000), 2001:db8::3 (AS 64503)";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn each_table_of_peers_is_for_the_routes_behind_it() {
    let mut bytes = Vec::new();
    let (first, second) = ((address("192.0.2.1"), 64501), (address("192.0.2.2"), 64502));
    let path = |peer, next_hop| Path {
        peer,
        ases: &[1],
        next_hop: address(next_hop),
    };
    let mut dump = Dump::new(&mut bytes, &[first]).unwrap();
    dump.route(address("10.0.0.0"), 8, &[path(0, "198.51.100.1")], false)
        .unwrap();
    dump.peers(&[second, first]).unwrap();
    dump.route(address("2001:db8::"), 32, &[path(0, "2001:db8::1")], false)
        .unwrap();
    dump.route(address("2001:db9::"), 32, &[path(1, "2001:db8::1")], false)
        .unwrap();
    let imported = import(&bytes);
    let peers = imported.report.peers.iter();
    let peers: Vec<_> = peers.map(|peer| (peer.address, peer.taken)).collect();
    assert_eq!(peers, [(first.0, 2), (second.0, 1)]);
    let by_as = Options {
        peer: PeerChoice::As(64502),
        ..Options::default()
    };
    let imported = read("test", bytes.as_slice(), &by_as).unwrap();
    assert_eq!(written(&imported), ["2001:db8::/32 via 2001:db8::1"]);
}

#[test]
fn dumps_of_the_older_kind_are_read() {
    let mut bytes = Vec::new();
    let path = |ases, next_hop| Path {
        peer: 0,
        ases,
        next_hop: address(next_hop),
    };
    let (first, second) = ((address("192.0.2.1"), 64501), (address("192.0.2.2"), 64502));
    let sixth = (address("2001:db8::3"), 64503);
    let (ten, eleven) = ((address("10.0.0.0"), 8), (address("11.0.0.0"), 8));
    let v6 = (address("2001:db8::"), 32);
    for (prefix, peer, path) in [
        (ten, first, path(&[64501, 1, 2], "198.51.100.1")),
        (ten, second, path(&[64502, 2], "198.51.100.2")),
        (ten, first, path(&[64501, 3], "198.51.100.3")),
        (eleven, first, path(&[64501], "198.51.100.1")),
        (v6, sixth, path(&[64503], "2001:db8::9")),
    ] {
        old_path(&mut bytes, prefix, peer, &path).unwrap();
    }
    let imported = import(&bytes);
    assert_eq!(imported.report.format, Format::Mrt);
    assert_eq!(
        written(&imported),
        [
            "10.0.0.0/8 via 198.51.100.2",
            "11.0.0.0/8 via 198.51.100.1",
            "2001:db8::/32 via 2001:db8::9",
        ]
    );
    let taken = imported.report.peers.iter();
    let taken: Vec<_> = taken
        .map(|peer| (peer.autonomous_system, peer.taken))
        .collect();
    assert_eq!(taken, [(64501, 1), (64502, 1), (64503, 1)]);
    let by_as = Options {
        peer: PeerChoice::As(64501),
        ..Options::default()
    };
    let imported = read("test", bytes.as_slice(), &by_as).unwrap();
    assert_eq!(
        written(&imported),
        ["10.0.0.0/8 via 198.51.100.3", "11.0.0.0/8 via 198.51.100.1"]
    );
    let longer = refusal(
        [
            &bytes[..],
            &[
                0, 0, 0, 0, 0, 12, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 10, 0, 0, 0, 33,
            ],
        ]
        .concat(),
    );
    assert!(
        longer.ends_with("a prefix of 33 bits, where addresses have 32"),
        "{longer}"
    );
}

#[test]
fn a_dump_cut_anywhere_is_refused_with_its_offset() {
    let whole = dump();
    let boundaries: Vec<usize> = (0..whole.len())
        .filter(|cut| read("test", &whole[..*cut], &Options::default()).is_ok())
        .collect();
    // Between records nothing shows that more should come.
    assert_eq!(boundaries.len(), 3, "{boundaries:?}");
    for cut in (9..whole.len()).filter(|cut| !boundaries.contains(cut)) {
        let said = refusal(&whole[..cut]);
        assert!(
            said.starts_with("test at byte ") || said.starts_with("test: "),
            "{said}"
        );
    }
    let last = refusal(&whole[..whole.len() - 1]);
    assert!(
        last.ends_with("cut off in the middle of a record: fetch the file again"),
        "{last}"
    );
}

#[test]
fn what_is_wrong_is_said_with_its_offset() {
    let peers = |bytes: &mut Vec<u8>| {
        Dump::new(bytes, &[(address("192.0.2.1"), 1)]).unwrap();
    };
    let broken = |subtype, body: &[u8]| {
        let mut bytes = Vec::new();
        peers(&mut bytes);
        record(&mut bytes, subtype, body).unwrap();
        refusal(bytes)
    };
    assert_eq!(
        broken(2, &[0, 0, 0, 0, 33]),
        "test at byte 54: a prefix of 33 bits, where addresses have 32"
    );
    assert_eq!(
        broken(4, &[0, 0, 0, 0, 129]),
        "test at byte 54: a prefix of 129 bits, where addresses have 128"
    );
    assert_eq!(
        broken(2, &[0, 0, 0, 0, 8, 10, 0, 1, 0, 9]),
        "test at byte 59: peer 9 of 1"
    );
    assert_eq!(
        broken(2, &[0, 0, 0, 0, 24, 10]),
        "test at byte 54: prefix goes beyond what holds it"
    );
    let mut bytes = Vec::new();
    record(&mut bytes, 2, &[0; 7]).unwrap();
    assert_eq!(
        refusal(bytes),
        "test at byte 12: a route before the table of peers: the file's beginning is missing"
    );
    assert_eq!(
        refusal([0, 0, 0, 0, 0, 16, 0, 4, 0, 0, 0, 0]),
        "test: an MRT log of BGP messages, not a table: give the RIB dump"
    );
    let huge = [0, 0, 0, 0, 0, 13, 0, 1, 0xff, 0xff, 0xff, 0xff];
    assert!(refusal(huge).contains("a record of 4294967295 bytes"));
}
