//! Packets: what tshark reads in their headers, and what the columns of packet.v1 say.
//!
//! Of what is in a tunnel, or quoted by ICMP, tshark has the same fields once more: the first of each
//! is asked for, and a transport's only where the outer packet is of it.

use std::path::Path;

use features::pcap::{Progress, Run};
use features::sink::{Error, Sink, json_lines};
use features::{Options, schema};
use serde_json::{Map, Value};

use super::conversations::tshark;

/// A column, and where tshark has it in a packet of one version, or of one protocol.
const COLUMNS: &[(&str, Of, &str)] = &[
    ("wire_len", Of::Every, "frame.len"),
    ("src_ip", Of::V4, "ip.src"),
    ("dst_ip", Of::V4, "ip.dst"),
    ("protocol", Of::V4, "ip.proto"),
    ("ip_len", Of::V4, "ip.len"),
    ("ip_hdr_len", Of::V4, "ip.hdr_len"),
    ("ip_id", Of::V4, "ip.id"),
    ("ttl", Of::V4, "ip.ttl"),
    ("dscp", Of::V4, "ip.dsfield.dscp"),
    ("ecn", Of::V4, "ip.dsfield.ecn"),
    ("src_ip", Of::V6, "ipv6.src"),
    ("dst_ip", Of::V6, "ipv6.dst"),
    ("ttl", Of::V6, "ipv6.hlim"),
    ("dscp", Of::V6, "ipv6.tclass.dscp"),
    ("ecn", Of::V6, "ipv6.tclass.ecn"),
    ("src_port", Of::Protocol(6), "tcp.srcport"),
    ("dst_port", Of::Protocol(6), "tcp.dstport"),
    ("tcp_flags", Of::Protocol(6), "tcp.flags"),
    ("tcp_seq", Of::Protocol(6), "tcp.seq_raw"),
    ("tcp_ack", Of::Protocol(6), "tcp.ack_raw"),
    ("tcp_window", Of::Protocol(6), "tcp.window_size_value"),
    (
        "tcp_window_scale",
        Of::Protocol(6),
        "tcp.options.wscale.shift",
    ),
    ("l4_hdr_len", Of::Protocol(6), "tcp.hdr_len"),
    ("payload_len", Of::Protocol(6), "tcp.len"),
    ("src_port", Of::Protocol(17), "udp.srcport"),
    ("dst_port", Of::Protocol(17), "udp.dstport"),
    ("icmp_type", Of::Protocol(1), "icmp.type"),
    ("icmp_code", Of::Protocol(1), "icmp.code"),
    ("icmp_type", Of::Protocol(58), "icmpv6.type"),
    ("icmp_code", Of::Protocol(58), "icmpv6.code"),
    ("vlan_id", Of::Every, "vlan.id"),
    ("src_mac", Of::Every, "eth.src"),
    ("dst_mac", Of::Every, "eth.dst"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Every,
    V4,
    V6,
    Protocol(u64),
}

/// Compares every packet of a capture.
pub(super) fn check(path: &Path) {
    let rows = rows(path);
    let frames = frames(path);
    assert_eq!(rows.len(), frames.len(), "{}: packets", path.display());
    for (row, frame) in rows.iter().zip(&frames) {
        let number = &frame[0];
        let what = format!("{}: frame {number}", path.display());
        assert_eq!(
            time(&frame[2]),
            time(row["time"].as_str().unwrap()),
            "{what}"
        );
        for ((column, of, field), theirs) in COLUMNS.iter().zip(&frame[3..]) {
            if is_asked(*of, row) {
                let ours = text(row.get(*column));
                assert_eq!(
                    ours,
                    number_or_text(column, theirs),
                    "{what}: {column}, {field}"
                );
            }
        }
    }
}

fn is_asked(of: Of, row: &Map<String, Value>) -> bool {
    let later = row["later_fragment"] == true;
    match of {
        Of::Every => true,
        Of::V4 => row["ip_version"] == 4,
        Of::V6 => row["ip_version"] == 6,
        Of::Protocol(number) => row["protocol"] == number && !later,
    }
}

/// Numbers of either base, and names, as one.
fn number_or_text(column: &str, text: &str) -> String {
    if let Some(hex) = text.strip_prefix("0x") {
        let number = u64::from_str_radix(hex, 16).unwrap();
        // Its flags have the three reserved bits in front of them.
        let number = if column == "tcp_flags" {
            number & 0xff
        } else {
            number
        };
        return number.to_string();
    }
    match (column, text) {
        ("vlan_id", "") => "0".to_owned(),
        // Where there is no hardware address, as on a loopback.
        ("src_mac" | "dst_mac", "00:00:00:00:00:00") => String::new(),
        _ => text.to_owned(),
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The part of a second: both print nine digits behind the point.
fn time(text: &str) -> &str {
    let fraction = text.trim_end_matches('Z').split_once('.');
    fraction.map_or("", |(_, fraction)| fraction.trim_end_matches('0'))
}

/// The fields of every IP packet: number, protocols, time, and those of the columns.
fn frames(path: &Path) -> Vec<Vec<String>> {
    let mut arguments: Vec<String> = ["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]
        .into_iter()
        .chain(["-Y", "ip or ipv6", "-T", "fields", "-E", "occurrence=f"])
        .chain([
            "-e",
            "frame.number",
            "-e",
            "frame.protocols",
            "-e",
            "frame.time_epoch",
        ])
        .map(str::to_owned)
        .collect();
    for (_, _, field) in COLUMNS {
        arguments.extend(["-e".to_owned(), (*field).to_owned()]);
    }
    let output = tshark(path, &arguments);
    let fields = |line: &str| line.split('\t').map(str::to_owned).collect();
    output.lines().map(fields).collect()
}

/// The rows of packet.v1.
fn rows(path: &Path) -> Vec<Map<String, Value>> {
    let run = Run {
        options: Options::default(),
        schema: schema::find("packet.v1").unwrap(),
    };
    let rows = Rows::default();
    let file = std::fs::File::open(path).unwrap();
    let summary = run.run(file, Box::new(rows.clone()), &Progress::default());
    assert_eq!(summary.counters.unaccounted(), 0, "{}", path.display());
    let text = std::mem::take(&mut *rows.0.lock().unwrap());
    let text = String::from_utf8(text).unwrap();
    let row = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(row).collect()
}

/// Rows as lines of JSON.
#[derive(Clone, Default)]
struct Rows(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Sink for Rows {
    fn write(&mut self, batch: &arrow_array::RecordBatch) -> Result<(), Error> {
        self.0.lock().unwrap().extend(json_lines(batch)?);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        0
    }
}
