//! Each importer refuses small files that ask for much, at the line that does. `scripts/router-hostile.py` has many more
//! of them, and measures what they cost.

use router::{routes, rules};

const BOTH6: &str = "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe";
const NESTING_DEPTH: &str = "test:1: recursion limit exceeded";
const LONG: &str = "a line of more than 1 MiB";

fn long() -> String {
    "1".repeat((1 << 20) + 1)
}

fn nested() -> String {
    "[".repeat(100_000)
}

#[test]
fn routes_that_ask_for_much_are_refused_at_their_line() {
    let hops = "\tvia 10.0.0.1 on e0".repeat(60_000);
    let mrt = [0, 0, 0, 0, 0, 13, 0, 1, 255, 255, 255, 255, 0, 0];
    let cases: [(&str, Vec<u8>, String); 7] = [
        (
            "plain",
            format!("10.0.0.0/8 {}", long()).into(),
            format!("test:1: {LONG}"),
        ),
        (
            "ip-route",
            format!("default via 10.0.0.1\ndefault via {}", long()).into(),
            format!("test:2: {LONG}"),
        ),
        (
            "ip-route-json",
            format!("[{{\"dst\":{}", nested()).into(),
            NESTING_DEPTH.into(),
        ),
        (
            "bird",
            format!("Table master4:\n10.0.0.0/8 unicast [s 00:00] * (200)\n{hops}").into(),
            format!("test:3: {LONG}"),
        ),
        (
            "frr-json",
            format!("{{\"10.0.0.0/8\":{}", nested()).into(),
            NESTING_DEPTH.into(),
        ),
        (
            "pfx2as",
            format!("10.0.0.0\t8\t{}", long()).into(),
            format!("test:1: {LONG}"),
        ),
        (
            "mrt",
            mrt.into(),
            "test at byte 0: a record of 4294967295 bytes".into(),
        ),
    ];
    for (format, content, expected) in cases {
        let options = routes::Options {
            format: Some(format.parse().unwrap()),
            ..routes::Options::default()
        };
        let refusal = routes::read("test", &*content, &options).unwrap_err();
        let refusal = refusal.to_string();
        assert!(refusal.starts_with(&expected), "{format}: {refusal:.200}");
    }
}

#[test]
fn rules_that_ask_for_much_are_refused_at_their_line() {
    let chains: String = (0..2000).map(|at| format!(":c{at} - [0:0]\n")).collect();
    let jumps: String = (0..1999)
        .map(|at| format!("-A c{at} -j c{}\n", at + 1))
        .collect();
    let ranges = format!("drop,{BOTH6},{BOTH6}\n").repeat(60);
    let cases = [
        ("classbench", format!("@10.0.0.0/8 {}", long()), LONG),
        (
            "iptables",
            format!("*filter\n:FORWARD ACCEPT [0:0]\n{chains}-A FORWARD -j c0\n{jumps}COMMIT\n"),
            "chains jump in a circle, or too deep",
        ),
        (
            "nft",
            format!("{{\"nftables\":[{{\"rule\":{}", nested()),
            "recursion limit exceeded",
        ),
        (
            "csv",
            format!("action,source,destination\n{ranges}"),
            "up to here the file needs more than 64 MiB of memory",
        ),
        (
            "json",
            format!("[{{\"action\":{}", nested()),
            "recursion limit exceeded",
        ),
    ];
    for (format, content, expected) in cases {
        let options = rules::Options {
            format: Some(format.parse().unwrap()),
            ..rules::Options::default()
        };
        let refusal = rules::read("test", content.as_bytes(), &options).unwrap_err();
        let refusal = refusal.to_string();
        let place = refusal.strip_prefix("test:").unwrap_or_default();
        assert!(
            place.starts_with(|first: char| first.is_ascii_digit()) && place.contains(expected),
            "{format}: {refusal:.200}"
        );
    }
}
