//! The real binary told which packets it should make rows of.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use packet::build;
use packet::pcap::{ETHERNET, Writer};
use serde_json::Value;

/// Both directions of so many flows, and an ARP frame.
fn capture(flows: u16) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    let server: SocketAddr = "192.0.2.2:443".parse().unwrap();
    for flow in 0..flows {
        let client = SocketAddr::from(([10, 0, 0, 1], 20_000 + flow));
        let time = 1_000_000_000 * i64::from(flow);
        for (from, to) in [(client, server), (server, client)] {
            writer.write(time, &build::udp(from, to).frame()).unwrap();
        }
    }
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    writer.write(0, &arp).unwrap();
    writer.finish().unwrap()
}

fn features(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["features", "pcap", "in.pcap", "-o", "out.csv", "--json"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// What became of every packet, in a folder with a capture of 500 flows.
fn account(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.pcap"), capture(500)).unwrap();
    fs::write(folder.path().join("nets.txt"), "192.0.2.0/24\n").unwrap();
    let output = features(folder.path(), arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Packets exported, filtered and sampled out; with the ARP frame they are all.
fn fates(arguments: &[&str]) -> [u64; 3] {
    let account = account(arguments);
    let fates =
        ["packets_exported", "filtered", "sampled_out"].map(|name| account[name].as_u64().unwrap());
    assert_eq!(account["packets_unaccounted"], 0);
    assert_eq!(account["drops"]["not_ip"], 1);
    assert_eq!(fates.iter().sum::<u64>(), 1000, "{account}");
    fates
}

#[test]
fn every_packet_is_exported_filtered_or_sampled_out() {
    assert_eq!(fates(&[]), [1000, 0, 0]);
    assert_eq!(fates(&["--filter", "dst port 443"]), [500, 500, 0]);
    assert_eq!(fates(&["--filter", "src net in nets.txt"]), [500, 500, 0]);
    let tiers = [
        "--tier",
        "src net in nets.txt=1/1",
        "--sample",
        "1/1000000000",
    ];
    assert_eq!(fates(&tiers), [500, 0, 500]);
    let [flows, filtered, rest] = fates(&["--filter", "port 443", "--sample-flows", "1/4"]);
    assert_eq!((flows % 2, filtered), (0, 0), "flows are kept whole");
    assert!((150..350).contains(&flows) && rest > 0, "{flows}");
    let parallel = [
        "--filter",
        "port 443",
        "--sample-flows",
        "1/4",
        "--threads",
        "3",
    ];
    assert_eq!(fates(&parallel), [flows, filtered, rest]);
    let [packets, _, _] = fates(&["--sample", "1/4"]);
    assert!((150..350).contains(&packets), "{packets}");
}

#[test]
fn wrong_rules_are_one_line_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.pcap"), capture(1)).unwrap();
    for (arguments, what) in [
        (
            ["--filter", "tcp and dst port https"],
            "--filter, column 18: expected a port",
        ),
        (
            ["--filter", "net in none.txt"],
            "--filter, column 8: none.txt: ",
        ),
        (["--sample-seed", "3"], "does nothing without --sample"),
        (
            ["--tier", "port=1/2"],
            "--tier \"port\", column 5: expected a port",
        ),
    ] {
        let output = features(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(what), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!folder.path().join("out.csv").exists());
    }
    for wrong in [
        ["--tier", "tcp"],
        ["--sample", "100"],
        ["--sample-flows", "2/1"],
    ] {
        let output = features(folder.path(), &wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
