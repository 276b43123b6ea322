//! The real binary replacing what identifies hosts in rows: every schema and file format, and what is refused.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use packet::build;
use packet::pcap::{ETHERNET, Writer};
use serde_json::Value;

/// A query for host.example.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04host\x07example\0\0\x01\0\x01";

/// Conversations over IPv4 and IPv6, and a name.
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
            let packet = build::udp(from, to).payload(QUERY);
            writer.write(time, &packet.frame()).unwrap();
        }
    }
    writer.finish().unwrap()
}

/// Texts that identify the hosts of the capture.
const HOST_TEXTS: [&str; 4] = ["198.51.100.", "2001:db8:", "02:00:00:00:00:0", "example"];
const LABELS: &str = "src_ip,label\n198.51.100.1,benign\n2001:db8::1,scan\n";

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
fn rows_of_every_schema_have_pseudonyms() {
    let folder = folder();
    let common = ["--labels", "labels.csv", "--schema"];
    for (schema, columns) in [
        ("flow.v1", 6),
        ("conn.v1", 5),
        ("cic.v1", 3),
        ("nfstream.v1", 7),
        ("tree.v1", 3),
        ("ipfix", 7),
        ("packet.v1", 5),
    ] {
        let arguments = [&common[..], &[schema]].concat();
        let (_, plain) = rows(folder.path(), &arguments);
        let run = |key: &'static str| {
            let arguments = [&arguments[..], &["--anonymize", key]].concat();
            rows(folder.path(), &arguments)
        };
        let (text, found) = run("key");
        for text_of_host in HOST_TEXTS {
            assert!(!text.contains(text_of_host), "{schema}: {text}");
        }
        assert_eq!(run("key").0, text, "{schema}");
        assert_ne!(run("other").0, text, "{schema}");
        assert_eq!(plain.len(), found.len());
        let mut changed = BTreeMap::new();
        for (before, after) in plain.iter().zip(&found) {
            for (name, value) in before {
                let other = after
                    .get(name)
                    .unwrap_or_else(|| panic!("{schema}: no {name} in {after:?}"));
                if other != value {
                    *changed.entry(name.clone()).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(changed.len(), columns, "{schema}: {changed:?}");
        // Some formats of rows leave out what is null.
        let labels = found.iter().filter(|row| {
            row.values()
                .any(|value| value == "benign" || value == "scan")
        });
        assert!(labels.count() >= 2, "{schema}: {text}");
        prefixes_are_kept(schema, &found);
    }
}

/// Hosts of one network have pseudonyms in one network.
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

/// Formats whose bytes show a value as it is.
#[test]
fn files_of_other_formats_have_pseudonyms() {
    let folder = folder();
    for (out, schema) in [
        ("out.csv", "flow.v1"),
        ("out.arrow", "flow.v1"),
        ("out.ipfix", "ipfix"),
    ] {
        let write = |arguments: &[&str]| {
            let common = ["--schema", schema, "-o", out];
            let output = features(folder.path(), &[&common, arguments].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{out}: {said}");
            fs::read(folder.path().join(out)).unwrap()
        };
        // As text, or as an information element of IPFIX.
        let patterns: [&[u8]; 2] = match schema {
            "ipfix" => [&[198, 51, 100, 1], &[0x20, 0x01, 0x0d, 0xb8]],
            _ => [b"198.51.100.", b"2001:db8:"],
        };
        let has = |bytes: &[u8]| {
            patterns.map(|pattern| bytes.windows(pattern.len()).any(|window| window == pattern))
        };
        assert_eq!(has(&write(&[])), [true; 2], "{out}");
        assert_eq!(has(&write(&["--anonymize", "key"])), [false; 2], "{out}");
    }
}

#[test]
fn hexadecimal_keys_are_the_same_keys() {
    let folder = folder();
    let digits = "07".repeat(32) + "\n";
    key(folder.path(), "digits", digits.as_bytes(), 0o600);
    let run = |key| rows(folder.path(), &["--anonymize", key]).0;
    assert_eq!(run("digits"), run("key"));
}

#[test]
fn keys_bits_and_packets_are_refused() {
    let folder = folder();
    key(folder.path(), "open", &[7; 32], 0o644);
    key(folder.path(), "short", &[b'7'; 31], 0o600);
    let pcap_out = ["--anonymize", "key", "--pcap-out", "out.pcap"];
    for (arguments, what) in [
        (
            &["--anonymize", "key", "--schema", "nprint.v1"][..],
            "the bits of headers hold addresses, which have no pseudonyms there; choose another schema",
        ),
        (
            &pcap_out,
            "--pcap-out would write packets with their addresses: leave one of them out",
        ),
        (
            &["--anonymize", "open"],
            "open: others can open the file; chmod 600 it",
        ),
        (
            &["--anonymize", "short"],
            "short: holds 31 bytes; a key has 32 bytes, or 64 hexadecimal digits",
        ),
        (&["--anonymize", "none"], "none: No such file"),
    ] {
        let arguments = [&["-o", "out.csv"], arguments].concat();
        let output = features(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
        assert!(!said.contains("77777"), "the key is shown: {said}");
        assert!(!folder.path().join("out.csv").exists(), "{arguments:?}");
        assert!(!folder.path().join("out.pcap").exists(), "{arguments:?}");
    }
    let onto_key = ["-o", "key", "--format", "csv", "--anonymize", "key"];
    let output = features(folder.path(), &onto_key);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(folder.path().join("key")).unwrap(), [7; 32]);
}
