//! The real binary joining labels to rows: every schema with addresses, and files that cannot be used.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use packet::build;
use packet::pcap::{ETHERNET, Writer};

/// Three conversations at the beginning of 2020: two over IPv4, and one over IPv6.
fn capture() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for (at, (client, server)) in (0..).zip([
        ("10.0.0.1:1000", "10.0.0.9:53"),
        ("10.0.0.2:1000", "10.0.0.9:53"),
        ("[fd00::1]:1000", "[fd00::9]:53"),
    ]) {
        let (client, server): (SocketAddr, SocketAddr) =
            (client.parse().unwrap(), server.parse().unwrap());
        for (from, to) in [(client, server), (server, client)] {
            let time = 1_577_836_800_000_000_000 + 1_000_000 * at;
            writer.write(time, &build::udp(from, to).frame()).unwrap();
        }
    }
    writer.finish().unwrap()
}

const LABELS: &str = "first,last,src_ip,dst_port,protocol,label\n\
    2020-01-01T00:00:00Z,2020-01-01T00:01:00Z,10.0.0.1,53,udp,benign\n\
    1577836800,1577836860,fd00::1,,,\"attack, new\"\n";

fn features(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["features", "pcap", "in.pcap", "--labels", "labels.csv"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn folder(labels: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.pcap"), capture()).unwrap();
    fs::write(folder.path().join("labels.csv"), labels).unwrap();
    folder
}

#[test]
fn every_schema_with_addresses_has_a_column_label() {
    let folder = folder(LABELS);
    for (schema, rows_of_flow) in [
        ("flow.v1", 1),
        ("cic.v1", 1),
        ("nfstream.v1", 1),
        ("tree.v1", 1),
        ("ipfix", 1),
        ("conn.v1", 1),
        ("packet.v1", 2),
    ] {
        let output = features(folder.path(), &["-o", "out.jsonl", "--schema", schema]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{schema}: {said}");
        let rows = fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
        let labels = rows.lines().map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            row["label"].as_str().unwrap_or("none").to_owned()
        });
        let mut labels: Vec<String> = labels.collect();
        labels.sort();
        labels.dedup_by_key(|label| label.clone());
        assert_eq!(labels, ["attack, new", "benign", "none"], "{schema}");
        assert_eq!(rows.lines().count(), 3 * rows_of_flow, "{schema}");
    }
}

#[test]
fn what_cannot_be_joined_is_refused_before_anything_is_written() {
    let folder = folder(LABELS);
    for (arguments, labels, what) in [
        (
            &["--schema", "nprint.v1"][..],
            LABELS,
            "the rows have no column src_ip, by which labels are joined",
        ),
        (
            &["--without", "dst_port"],
            LABELS,
            "the rows have no column dst_port",
        ),
        (
            &[],
            "src_ip,label\n1.2.3.4,x\n1.2.3,y\n",
            "labels.csv: line 3: \"1.2.3\" is not an IP address",
        ),
    ] {
        fs::write(folder.path().join("labels.csv"), labels).unwrap();
        let arguments = [&["-o", "out.csv"], arguments].concat();
        let output = features(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
        assert!(!folder.path().join("out.csv").exists(), "{arguments:?}");
    }
}

#[test]
fn the_file_of_labels_is_not_overwritten() {
    let folder = folder(LABELS);
    for arguments in [
        &["-o", "labels.csv"][..],
        &["-o", "out.csv", "--pcap-out", "labels.csv"],
    ] {
        let output = features(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("labels.csv has the labels"), "{said}");
        let text = fs::read_to_string(folder.path().join("labels.csv")).unwrap();
        assert_eq!(text, LABELS, "{arguments:?}");
    }
}

/// Labels whose times are in another zone than the capture match nothing, which is worth a warning.
#[test]
fn rows_that_all_stay_without_a_label_are_reported() {
    let folder = folder("first,last,label\n100,200,x\n");
    let output = features(folder.path(), &["-o", "out.csv"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no row has a label"), "{said}");
}
