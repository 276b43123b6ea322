//! The real binary giving rows pseudonyms: every schema with addresses, and what would tell whose the rows are.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use packet::build;
use packet::pcap::{ETHERNET, Writer};
use serde_json::Value;

/// Conversations over IPv4 and IPv6, and all of their addresses as rows would have them.
fn capture() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for (at, (client, server)) in (0..).zip([
        ("198.51.100.1:1000", "198.51.100.9:53"),
        ("198.51.100.2:1000", "198.51.100.9:53"),
        ("[2001:db8::1]:1000", "[2001:db8::9]:53"),
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

const TELLING: [&str; 3] = ["198.51.100.", "2001:db8:", "02:00:00:00:00:0"];
const LABELS: &str = "src_ip,label\n198.51.100.1,benign\n2001:db8::1,scan\n";
const WITHOUT: &str = "tls_sni,dns_name";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("in.pcap", &capture());
    write("labels.csv", LABELS.as_bytes());
    key(folder.path(), "key", &[7; 32], 0o600);
    key(folder.path(), "other", &[8; 32], 0o600);
    folder
}

fn key(folder: &Path, name: &str, bytes: &[u8], mode: u32) {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn features(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["features", "pcap", "in.pcap"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The rows of a run, as JSON lines.
fn rows(folder: &Path, arguments: &[&str]) -> (String, Vec<BTreeMap<String, Value>>) {
    let output = features(folder, &[&["-o", "out.jsonl"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    let text = fs::read_to_string(folder.join("out.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let rows = rows.collect();
    (text, rows)
}

#[test]
fn rows_of_every_schema_tell_no_address_and_all_else() {
    let folder = folder();
    let common = ["--labels", "labels.csv", "--schema"];
    for (schema, without, columns) in [
        ("flow.v1", WITHOUT, 5),
        ("cic.v1", "Label", 3),
        ("nfstream.v1", "vlan_id", 7),
        ("tree.v1", "fwd_tos", 3),
        ("ipfix", "vlanId", 7),
        ("packet.v1", "ttl", 5),
    ] {
        let arguments = [&common[..], &[schema, "--without", without]].concat();
        let (_, plain) = rows(folder.path(), &arguments);
        let run = |key: &'static str| {
            let arguments = [&arguments[..], &["--anonymize", key]].concat();
            rows(folder.path(), &arguments)
        };
        let (text, found) = run("key");
        for telling in TELLING {
            assert!(!text.contains(telling), "{schema}: {text}");
        }
        assert_eq!(run("key").0, text, "{schema}");
        assert_ne!(run("other").0, text, "{schema}");
        assert_eq!(plain.len(), found.len());
        let mut changed = BTreeMap::new();
        for (before, after) in plain.iter().zip(&found) {
            for (name, value) in before {
                if after[name] != *value {
                    *changed.entry(name.clone()).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(changed.len(), columns, "{schema}: {changed:?}");
        let labels = found.iter().filter(|row| row["label"].is_string());
        assert!(labels.count() >= 2, "{schema}: {text}");
        prefixes_are_kept(schema, &found);
    }
}

/// The servers and clients of one network are in one network.
fn prefixes_are_kept(schema: &str, rows: &[BTreeMap<String, Value>]) {
    let text = |row: &BTreeMap<String, Value>, names: [&str; 3]| {
        let mut values = names.iter().filter_map(|name| row.get(*name)?.as_str());
        values.next().map(str::to_owned)
    };
    for row in rows {
        let source = text(row, ["src_ip", "Src IP", "sourceIPv4Address"]);
        let destination = text(row, ["dst_ip", "Dst IP", "destinationIPv4Address"]);
        let (Some(source), Some(destination)) = (source, destination) else {
            continue;
        };
        if source.contains('.') {
            let network = |address: &str| address.rsplit_once('.').unwrap().0.to_owned();
            assert_eq!(network(&source), network(&destination), "{schema}");
            assert_ne!(source, destination, "{schema}");
        }
        if let Some(id) = row.get("Flow ID") {
            let id = id.as_str().unwrap();
            assert!(id.contains(&source) && id.contains(&destination), "{id}");
        }
    }
}

#[test]
fn what_would_tell_whose_the_rows_are_is_refused() {
    let folder = folder();
    key(folder.path(), "open", &[7; 32], 0o644);
    key(folder.path(), "short", &[7; 31], 0o600);
    for (arguments, what) in [
        (
            &["--anonymize", "key"][..],
            "no pseudonyms for these columns, which may tell whose the rows are: tls_sni,",
        ),
        (
            &["--anonymize", "key", "--schema", "nprint.v1"],
            "whose the rows are: bits",
        ),
        (
            &[
                "--anonymize",
                "key",
                "--schema",
                "cic.v1",
                "--pcap-out",
                "out.pcap",
            ],
            "--pcap-out would write the packets with their addresses",
        ),
        (
            &["--anonymize", "open", "--schema", "cic.v1"],
            "open: others can open the file; chmod 600 it",
        ),
        (
            &["--anonymize", "short", "--schema", "cic.v1"],
            "short: has 31 bytes, and a key has 32",
        ),
        (
            &["--anonymize", "none", "--schema", "cic.v1"],
            "none: No such file",
        ),
    ] {
        let arguments = [&["-o", "out.csv"], arguments].concat();
        let output = features(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
        assert!(!folder.path().join("out.csv").exists(), "{arguments:?}");
    }
    let output = features(
        folder.path(),
        &[
            "-o",
            "key",
            "--format",
            "csv",
            "--schema",
            "cic.v1",
            "--anonymize",
            "key",
        ],
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(folder.path().join("key")).unwrap(), [7; 32]);
}
