//! Damaged input is refused or read, and never a panic.

use proptest::prelude::*;
use proptest::test_runner::Config;
use router::{routes, rules};

use crate::common::mrt::{Dump, Path};

fn config() -> Config {
    Config {
        cases: 64 * sys::require::fuzz(),
        failure_persistence: None,
        ..Config::default()
    }
}

const ROUTES: [&str; 5] = [
    "10.0.0.0/8 192.0.2.1\n2001:db8::/32 2001:db8::1 eth0\n",
    "1.0.0.0\t24\t13335\n1.0.4.0\t22\t38803_56203\n",
    "default via 192.0.2.1 dev eth0 metric 3\n10.0.0.0/8\n\tnexthop via 192.0.2.1 dev eth0 weight 2\n10.1.0.0/16  encap mpls 100 via 192.0.2.1 dev eth0\n",
    "[{\"dst\":\"default\",\"gateway\":\"192.0.2.1\",\"dev\":\"eth0\",\"metric\":3,\"flags\":[]},{\"dst\":\"10.0.0.0/8\",\"nexthops\":[{\"via\":{\"family\":\"inet6\",\"host\":\"fe80::1\"},\"dev\":\"eth0\",\"weight\":2,\"flags\":[\"dead\"]}]}]",
    "BIRD 2.0.12 ready.\nTable master4:\n10.0.0.0/8 unicast [one 18:00:00.000] * (200)\n\tvia 192.0.2.1 on eth0 weight 2\n                     blackhole [two 18:00] (100)\n",
];

const RULES: [&str; 4] = [
    "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:a - [0:0]\n-A FORWARD ! -s 10.0.0.0/8 -p tcp -m tcp --dport 80:90 -j a\n-A a -m iprange --src-range 10.0.0.1-10.0.0.9 -j RETURN\n-A a -g a\nCOMMIT\n",
    "action,source,destination_ports,protocol\naccept,10.0.0.1-10.0.0.6,80-90,tcp\ndrop,2001:db8::/32,,\n",
    "@1.2.3.4/32 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n",
    r#"{"nftables":[{"metainfo":{"json_schema_version":1}},{"table":{"family":"inet","name":"f","handle":1}},
{"set":{"family":"inet","name":"s","table":"f","type":["ipv4_addr","inet_service"],"flags":["interval"],"elem":[{"concat":[{"prefix":{"addr":"10.0.0.0","len":8}},{"range":[80,90]}]}]}},
{"map":{"family":"inet","name":"v","table":"f","type":"inet_service","map":"verdict","elem":[[{"elem":{"val":22,"comment":"x"}},{"jump":{"target":"a"}}],["*",{"drop":null}]]}},
{"chain":{"family":"inet","table":"f","name":"c","handle":1,"type":"filter","hook":"forward","prio":0,"policy":"drop"}},
{"chain":{"family":"inet","table":"f","name":"a","handle":2}},
{"rule":{"family":"inet","table":"f","chain":"c","handle":3,"expr":[{"match":{"op":"!=","left":{"concat":[{"payload":{"protocol":"ip","field":"saddr"}},{"payload":{"protocol":"th","field":"dport"}}]},"right":"@s"}},{"limit":{"rate":3,"per":"second"}},{"accept":null}]}},
{"rule":{"family":"inet","table":"f","chain":"a","handle":4,"expr":[{"match":{"op":"<","left":{"payload":{"protocol":"tcp","field":"sport"}},"right":1024}},{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["new"]}},{"counter":{"packets":0,"bytes":0}},{"goto":{"target":"a"}}]}},
{"rule":{"family":"inet","table":"f","chain":"c","handle":5,"expr":[{"vmap":{"key":{"payload":{"protocol":"udp","field":"dport"}},"data":"@v"}}]}}]}"#,
];

fn dump() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hop = "192.0.2.1".parse().unwrap();
    let mut dump = Dump::new(&mut bytes, &[(hop, 1), ("::1".parse().unwrap(), 70_000)]).unwrap();
    for (network, add_path) in [
        ("10.0.0.0", false),
        ("2001:db8::", false),
        ("10.1.0.0", true),
    ] {
        let network = network.parse().unwrap();
        let paths = [0, 1].map(|peer| Path {
            peer,
            ases: &[1, 2, 3],
            next_hop: network,
        });
        dump.route(network, 16, &paths, add_path).unwrap();
    }
    bytes
}

/// Some bytes replaced, some taken out, some doubled, and perhaps an end that is missing.
fn damage(mut bytes: Vec<u8>, places: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
    for (place, kind, byte) in places {
        if bytes.is_empty() {
            break;
        }
        let at = place.index(bytes.len());
        match kind {
            0..=5 => bytes[at] = *byte,
            6 => drop(bytes.remove(at)),
            7 => bytes.insert(at, *byte),
            8 => bytes.truncate(at),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

fn places() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0_u8..10, any::<u8>()), 0..6)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn damaged_routes_are_no_panic(places in places(), which in 0..ROUTES.len()) {
        let bytes = damage(ROUTES[which].into(), &places);
        let _ = routes::read("fuzz", bytes.as_slice(), &routes::Options::default());
        for format in routes::Format::ALL {
            let options = routes::Options { format: Some(format), ..Default::default() };
            let _ = routes::read("fuzz", bytes.as_slice(), &options);
        }
    }

    #[test]
    fn damaged_dumps_are_no_panic(places in places()) {
        let bytes = damage(dump(), &places);
        let options = routes::Options { format: Some(routes::Format::Mrt), ..Default::default() };
        let _ = routes::read("fuzz", bytes.as_slice(), &options);
    }

    #[test]
    fn damaged_archives_are_no_panic(places in places()) {
        let bytes = damage(include_bytes!("../data/list-three-streams.bz2").to_vec(), &places);
        let _ = routes::read("fuzz", bytes.as_slice(), &routes::Options::default());
    }

    #[test]
    fn damaged_rules_are_no_panic(places in places(), which in 0..RULES.len()) {
        let bytes = damage(RULES[which].into(), &places);
        for format in rules::Format::ALL {
            let options = rules::Options { format: Some(format), ..Default::default() };
            let _ = rules::read("fuzz", bytes.as_slice(), &options);
        }
    }
}
