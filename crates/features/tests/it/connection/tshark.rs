//! Retransmissions, segments out of order and windows of zero beside tshark's analysis.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{ACK, FIN, MILLISECOND, Segment, capture, client, handshake, rows, server};

/// Captures on which the two definitions say the same, but for what [`DIFFERENCES`] has.
const CAPTURES: [&str; 5] = [
    "ntop_nDPI__1kxun.pcap",
    "ntop_nDPI__gnutella.pcap",
    "ntop_nDPI__opera-vpn.pcapng",
    "ntop_nDPI__teams.pcap",
    "ntop_nDPI__tor.pcap",
];

/// How many more retransmissions, and fewer segments out of order, a sender has here than at tshark. It takes bytes
/// that were seen before, and come again within a round trip, for late ones; and bytes that fill a gap
/// within a round trip for retransmissions after two equal acknowledgements.
const DIFFERENCES: [(&str, i64); 5] = [
    ("192.168.1.29 51421", 1),
    ("192.168.1.29 51430", 1),
    ("192.168.1.29 51416", 1),
    ("52.114.250.123 443 50021", -1),
    ("40.126.9.5 443 60534", -1),
];

/// Retransmissions, segments out of order, windows of zero.
type Counts = BTreeMap<String, [i64; 3]>;

#[test]
fn captures_from_outside_and_one_made_here() {
    if Command::new("tshark").arg("--version").output().is_err() {
        sys::require::skip(sys::require::Class::Core, "needs tshark");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.pcap");
    std::fs::write(&path, capture(&of_everything())).unwrap();
    let ours = by_rows(&path);
    assert_eq!(ours, by_tshark(&path));
    assert_eq!(ours["10.0.0.1 40000 80"], [3, 1, 0]);
    assert_eq!(ours["10.0.0.2 80 40000"], [0, 0, 2]);

    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    for name in CAPTURES {
        let path = corpus.join("pcap").join(name);
        let (mut ours, theirs) = (by_rows(&path), by_tshark(&path));
        for (sender, difference) in DIFFERENCES {
            let found = ours.iter_mut().find(|(key, _)| key.starts_with(sender));
            if let Some((_, [retransmissions, out_of_order, _])) = found {
                *retransmissions -= difference;
                *out_of_order += difference;
            }
        }
        assert_eq!(ours, theirs, "{name}");
    }
}

/// A connection with something of everything.
fn of_everything() -> Vec<Segment> {
    let bytes = |from: u32, payload| client(ACK, 101 + from, 101, payload);
    let mut segments = handshake();
    segments.extend([
        bytes(0, 100),
        bytes(200, 100),
        bytes(100, 100),
        bytes(0, 100).after(300 * MILLISECOND),
        server(ACK, 101, 401, 0).window(0),
        bytes(299, 1),
        server(ACK, 101, 401, 0).window(0),
        bytes(300, 1),
        server(ACK, 101, 401, 0),
        bytes(300, 100),
        bytes(300, 100).after(300 * MILLISECOND),
        client(FIN | ACK, 501, 101, 0),
        client(FIN | ACK, 501, 101, 0).after(300 * MILLISECOND),
    ]);
    segments
}

/// By a sender's address and port, and the other one's port; senders without any left out.
fn by_rows(path: &Path) -> Counts {
    let mut counts = Counts::new();
    for row in rows(&std::fs::read(path).unwrap()) {
        let number = |name: &str| row[name].as_i64();
        for (side, [address, port, other]) in [
            ("fwd", ["src_ip", "src_port", "dst_port"]),
            ("bwd", ["dst_ip", "dst_port", "src_port"]),
        ] {
            let names = ["retransmissions", "out_of_order_segments", "zero_windows"];
            let found = names.map(|name| number(&format!("{side}_{name}")).unwrap_or(0));
            let key = format!("{} {} {}", text(&row[address]), row[port], row[other]);
            add(&mut counts, key, found);
        }
    }
    counts
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn by_tshark(path: &Path) -> Counts {
    const FLAGS: [&str; 3] = [
        "tcp.analysis.retransmission",
        "tcp.analysis.out_of_order",
        "tcp.analysis.zero_window",
    ];
    let mut command = Command::new("tshark");
    command
        // Whoever runs the test may have preferences.
        .env("WIRESHARK_CONFIG_DIR", "/nonexistent")
        .args([
            "-o",
            "ip.defragment:FALSE",
            "-T",
            "fields",
            "-E",
            "occurrence=f",
        ])
        .args(["-Y", &FLAGS.join(" or "), "-r"])
        .arg(path);
    for field in ["ip.src", "ipv6.src", "tcp.srcport", "tcp.dstport"]
        .iter()
        .chain(&FLAGS)
    {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", path.display());
    let mut counts = Counts::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [v4, v6, port, other, flags @ ..] = &fields[..] else {
            panic!("{line}");
        };
        let found = [0, 1, 2].map(|flag| i64::from(!flags[flag].is_empty()));
        add(&mut counts, format!("{v4}{v6} {port} {other}"), found);
    }
    counts
}

fn add(counts: &mut Counts, key: String, found: [i64; 3]) {
    if found != [0; 3] {
        let counts = counts.entry(key).or_default();
        *counts = std::array::from_fn(|index| counts[index] + found[index]);
    }
}
