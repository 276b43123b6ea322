//! Rows about packets: values worked out by hand, sums that are those of flows, bits that are those of
//! the headers, and every packet in a row or dropped under a name.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;

use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{Array, RecordBatch};
use features::pcap::{Progress, Run};
use features::schema;
use features::sink::{FileSink, Format, Mode, Rotation};
use packet::build::{self, Builder, Extension};
use packet::pcap::{ETHERNET, Frame, Reader, Writer};
use serde_json::{Value, json};

use crate::common::{self, MemorySink, captures, json_rows, run};

const MS: i64 = 1_000_000;
const START: i64 = 1_700_000_000_000_000_000;

fn ends() -> (SocketAddr, SocketAddr) {
    (
        "192.0.2.1:5000".parse().unwrap(),
        "192.0.2.2:80".parse().unwrap(),
    )
}

/// Frames with their times after the start, in milliseconds, and how much of each was kept.
fn capture(frames: &[(i64, Builder, Option<usize>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for (ms, builder, kept) in frames {
        let frame = builder.frame();
        let length = u32::try_from(frame.len()).unwrap();
        let kept = kept.unwrap_or(frame.len());
        writer
            .write_cut(START + ms * MS, length, &frame[..kept])
            .unwrap();
    }
    writer.finish().unwrap()
}

/// Some of a row's columns; what is null is not in it.
fn assert_has(row: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        let found = row.get(name).unwrap_or(&Value::Null);
        assert_eq!(found, value, "{name} of {row:#}");
    }
}

#[test]
fn a_connections_packets_have_the_values_worked_out_by_hand() {
    let (client, server) = ends();
    let capture = capture(&[
        // 14 + 20 + 28 bytes: eight bytes of options.
        (0, build::tcp(client, server, 0x02, 2).ttl(63), None),
        (3, build::tcp(server, client, 0x12, 2).tos(0xb9), None),
        (
            5,
            build::tcp(client, server, 0x18, 0).payload([0, 1, 2, 3]),
            None,
        ),
        // Older than the one before, and cut off behind its ports.
        (
            4,
            build::tcp(client, server, 0x10, 0).payload([9; 100]),
            Some(14 + 20 + 4),
        ),
    ]);
    let (summary, rows) = json_rows(&run("packet.v1"), &capture);
    assert_eq!(summary.counters.unaccounted(), 0);
    assert_eq!((summary.rows, summary.counters.exported.flows), (4, 1));
    let ids: Vec<&Value> = rows.iter().map(|row| &row["flow_id"]).collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_has(
        &rows[0],
        &json!({
            "packets_before": 0, "forward": true, "iat_ns": null, "out_of_order": false,
            "ip_version": 4, "protocol": 6, "src_ip": "192.0.2.1", "src_port": 5000,
            "dst_ip": "192.0.2.2", "dst_port": 80, "src_mac": "02:00:00:00:00:01",
            "dst_mac": "02:00:00:00:00:02", "vlan_id": 0, "vlan_tags": 0,
            "wire_len": 62, "ip_len": 48, "ip_hdr_len": 20, "l4_hdr_len": 28, "payload_len": 0,
            "payload_entropy": null, "ttl": 63, "dscp": 0, "ecn": 0, "tcp_flags": 2,
            "fragment": false, "later_fragment": false, "truncated": false, "headless": false,
            "icmp_type": null, "tunnel_id": 0,
        }),
    );
    assert_has(
        &rows[1],
        &json!({
            "packets_before": 1, "forward": false, "iat_ns": 3 * MS, "src_ip": "192.0.2.2",
            "src_port": 80, "dst_port": 5000, "dscp": 46, "ecn": 1, "tcp_flags": 18,
        }),
    );
    assert_has(
        &rows[2],
        &json!({
            "packets_before": 2, "forward": true, "iat_ns": 2 * MS, "wire_len": 58,
            "ip_len": 44, "l4_hdr_len": 20, "payload_len": 4, "payload_entropy": 2.0,
            "tcp_flags": 24,
        }),
    );
    assert_has(
        &rows[3],
        &json!({
            "packets_before": 3, "iat_ns": 0, "out_of_order": true, "wire_len": 154,
            "ip_len": 140, "payload_len": 100, "payload_entropy": null, "truncated": true,
            "headless": true, "tcp_flags": null, "tcp_seq": null, "src_port": 5000,
        }),
    );
}

#[test]
fn fragments_tags_and_echoes_are_told() {
    let (client, server) = ends();
    let first = build::udp(client, server).payload([7; 32]);
    let later = build::other(client.ip(), server.ip(), 17).payload([7; 16]);
    let six = ["[2001:db8::1]:7", "[2001:db8::2]:9"].map(|end| end.parse().unwrap());
    let capture = capture(&[
        (0, first.fragment(0, true).identification(77), None),
        (1, later.fragment(5, false).identification(77), None),
        (2, build::echo(client.ip(), server.ip()).vlan(0x2005), None),
        (
            3,
            build::udp(six[0], six[1]).extension(Extension::Routing(0)),
            None,
        ),
    ]);
    let (_, rows) = json_rows(&run("packet.v1"), &capture);
    assert_has(
        &rows[0],
        &json!({"fragment": true, "later_fragment": false, "ip_id": 77, "l4_hdr_len": 8}),
    );
    assert_has(
        &rows[1],
        &json!({
            "fragment": true, "later_fragment": true, "headless": true, "src_port": 5000,
            "dst_port": 80, "l4_hdr_len": 0, "payload_len": 16, "packets_before": 1,
        }),
    );
    assert_has(
        &rows[2],
        &json!({
            "vlan_id": 5, "vlan_tags": 1, "icmp_type": 8, "icmp_code": 0, "tcp_flags": null,
        }),
    );
    assert_has(
        &rows[3],
        &json!({"ip_version": 6, "ip_hdr_len": 48, "ip_id": null, "src_ip": "2001:db8::1"}),
    );
}

#[test]
fn packets_of_every_capture_add_up_to_its_flows() {
    for (name, capture) in captures() {
        let (summary, packets) = json_rows(&run("packet.v1"), &capture);
        let (flows_summary, flows) = json_rows(&run("flow.v1"), &capture);
        let counters = &summary.counters;
        assert_eq!(counters.unaccounted(), 0, "{name}");
        assert_eq!(counters.seen, flows_summary.counters.seen, "{name}");
        assert_eq!(counters.exported.packets, summary.rows, "{name}");
        assert_eq!(counters.exported.flows, flows_summary.rows, "{name}");
        let mut sums: HashMap<u64, Sums> = HashMap::new();
        for row in &packets {
            let sums = sums.entry(row["flow_id"].as_u64().unwrap()).or_default();
            assert_eq!(row["packets_before"], sums.packets, "{name}");
            sums.add(row);
        }
        assert_eq!(sums.len(), flows.len(), "{name}");
        for flow in &flows {
            let sums = &sums[&flow["flow_id"].as_u64().unwrap()];
            sums.assert_are_of(flow, &name);
        }
    }
}

#[derive(Default)]
struct Sums {
    packets: u64,
    forward: u64,
    wire: u64,
    payload: u64,
    out_of_order: u64,
    longest_gap: Option<u64>,
}

impl Sums {
    fn add(&mut self, row: &Value) {
        let number = |name: &str| row[name].as_u64().unwrap();
        self.packets += 1;
        self.forward += u64::from(row["forward"].as_bool().unwrap());
        self.wire += number("wire_len");
        self.payload += number("payload_len");
        self.out_of_order += u64::from(row["out_of_order"].as_bool().unwrap());
        let gap = row.get("iat_ns").and_then(Value::as_u64);
        self.longest_gap = self.longest_gap.max(gap);
    }

    fn assert_are_of(&self, flow: &Value, name: &str) {
        let of = |column: &str| flow.get(column).and_then(Value::as_u64);
        assert_eq!(of("packets"), Some(self.packets), "{name}");
        assert_eq!(of("fwd_packets"), Some(self.forward), "{name}");
        assert_eq!(of("bytes"), Some(self.wire), "{name}");
        assert_eq!(of("payload_bytes"), Some(self.payload), "{name}");
        assert_eq!(of("out_of_order"), Some(self.out_of_order), "{name}");
        assert_eq!(of("iat_max_ns"), self.longest_gap, "{name}");
    }
}

fn with_payload(bytes: usize) -> Run {
    let mut run = run("nprint.v1");
    run.options.limits.payload_bytes = bytes;
    run
}

/// The rows of a run's only column of bits.
fn bit_rows(run: &Run, capture: &[u8]) -> Vec<Vec<i8>> {
    let kept = MemorySink::default();
    let summary = run.run(capture, Box::new(kept.clone()), &Progress::default());
    assert_eq!(summary.counters.unaccounted(), 0);
    let batches = kept.0.lock().unwrap();
    batches.iter().flat_map(matrix).collect()
}

/// As a model takes them: rows of one piece of memory.
fn matrix(batch: &RecordBatch) -> Vec<Vec<i8>> {
    let lists = batch.column_by_name("bits").unwrap().as_fixed_size_list();
    assert_eq!(lists.null_count() + lists.values().null_count(), 0);
    let values = lists.values().as_primitive::<Int8Type>().values();
    let width = usize::try_from(lists.value_length()).unwrap();
    assert_eq!(values.len(), width * batch.num_rows());
    values.chunks(width).map(<[i8]>::to_vec).collect()
}

/// Bytes as nPrint shows them, in a place of so many bits.
fn nprint_bits(bytes: &[u8], place: usize) -> Vec<i8> {
    let bit = |byte: u8, bit: u32| i8::from(byte >> (7 - bit) & 1 == 1);
    let mut bits: Vec<i8> = bytes
        .iter()
        .flat_map(|&byte| (0..8).map(move |at| bit(byte, at)))
        .collect();
    bits.resize(place, -1);
    bits
}

/// What nPrint would show of an Ethernet frame, read here once more; nothing where there is no IP packet
/// in it.
fn expected_bits(frame: &Frame<'_>, payload_bytes: usize) -> Option<Vec<i8>> {
    assert_eq!(frame.link_type, ETHERNET);
    let (mut bytes, mut ethertype) = (frame.bytes.get(14..)?, u16_at(frame.bytes, 12));
    while matches!(ethertype, 0x8100 | 0x88a8) {
        ethertype = u16_at(bytes, 2);
        bytes = &bytes[4..];
    }
    if !matches!(ethertype, 0x0800 | 0x86dd) {
        return None;
    }
    let (v4, v6, length, mut number, mut rest);
    if bytes[0] >> 4 == 4 {
        let header = usize::from(bytes[0] & 15) * 4;
        (v4, v6) = (&bytes[..header], &[][..]);
        length = usize::from(u16_at(bytes, 2)).min(bytes.len());
        number = bytes[9];
        rest = &bytes[header..length];
        if u16_at(bytes, 6) & 0x1fff > 0 {
            number = 255;
        }
    } else {
        (v4, v6) = (&[][..], &bytes[..40]);
        length = (40 + usize::from(u16_at(bytes, 4))).min(bytes.len());
        number = bytes[6];
        rest = &bytes[40..length];
        while matches!(number, 0 | 43 | 44 | 60) {
            let (now, fragment) = (number, u16_at(rest, 2) & 0xfff8);
            number = rest[0];
            let size = if now == 44 {
                8
            } else {
                usize::from(rest[1]) * 8 + 8
            };
            rest = &rest[size..];
            if now == 44 && fragment > 0 {
                number = 255;
            }
        }
    }
    let size = match (number, v4.is_empty()) {
        (6, _) => rest
            .get(12)
            .map_or(20, |offset| usize::from(offset >> 4) * 4)
            .max(20),
        (17, _) | (1, false) | (58, true) => 8,
        (132 | 33, _) => 12,
        (136, _) => 8,
        _ => 0,
    };
    let (header, payload) = rest.split_at(size.min(rest.len()));
    let of = |wanted: bool| if wanted { header } else { &[] };
    let icmp = matches!((number, v4.is_empty()), (1, false) | (58, true));
    let payload = &payload[..payload.len().min(payload_bytes)];
    Some(
        [
            nprint_bits(v4, 480),
            nprint_bits(v6, 320),
            nprint_bits(of(number == 6), 480),
            nprint_bits(of(number == 17), 64),
            nprint_bits(of(icmp), 64),
            nprint_bits(payload, 8 * payload_bytes),
        ]
        .concat(),
    )
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[test]
fn bits_are_those_of_the_headers_in_every_capture() {
    for (name, capture) in captures() {
        for payload_bytes in [0, 20] {
            let rows = bit_rows(&with_payload(payload_bytes), &capture);
            let mut expected = Vec::new();
            let mut reader = Reader::new(capture.as_slice()).unwrap();
            while let Some(frame) = reader.read().unwrap() {
                expected.extend(expected_bits(&frame, payload_bytes));
            }
            assert_eq!(rows.len(), expected.len(), "{name}");
            for (at, (row, expected)) in rows.iter().zip(&expected).enumerate() {
                assert_eq!(row, expected, "{name}: packet {at}");
            }
        }
    }
}

#[test]
fn the_metadata_names_every_bit() {
    let schema = with_payload(2).arrow_schema();
    let field = schema.field_with_name("bits").unwrap();
    let fields = &field.metadata()["fields"];
    assert!(fields.starts_with("ipv4_ver:4,ipv4_hl:4,"), "{fields}");
    assert!(fields.ends_with(",icmp_roh:32,payload_bit:16"), "{fields}");
    let bits = fields
        .split(',')
        .map(|field| field.split_once(':').unwrap());
    let bits: usize = bits.map(|(_, bits)| bits.parse::<usize>().unwrap()).sum();
    assert_eq!(bits, 1408 + 16);
}

#[test]
fn files_of_every_format_hold_rows_about_packets() {
    let capture = common::capture(3);
    let folder = tempfile::tempdir().unwrap();
    for schema in ["packet.v1", "nprint.v1"] {
        let run = run(schema);
        for format in Format::ALL {
            let path = folder.path().join(schema).with_extension(format.name());
            let (whole, once) = (Mode::Whole, Rotation::default());
            let sink = FileSink::create(&path, format, &run.arrow_schema(), once, whole);
            let sink = match (format, sink) {
                (Format::Ipfix, refused) => {
                    let why = refused.err().unwrap().to_string();
                    assert!(why.contains("--schema ipfix"), "{why}");
                    continue;
                }
                (_, sink) => sink.unwrap(),
            };
            let summary = run.run(capture.as_slice(), Box::new(sink), &Progress::default());
            assert_eq!((summary.rows, summary.lost_rows), (54, 0), "{path:?}");
            assert_eq!(in_file(&path, format), 54, "{path:?}");
        }
    }
}

/// Rows of a file; of text, with the names of its columns where they are said once.
fn in_file(path: &std::path::Path, format: Format) -> usize {
    let file = || File::open(path).unwrap();
    match format {
        Format::Parquet => {
            use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
            let reader = ParquetRecordBatchReaderBuilder::try_new(file()).unwrap();
            let batches = reader.build().unwrap();
            batches.map(|batch| batch.unwrap().num_rows()).sum()
        }
        Format::Arrow => {
            let reader = arrow_ipc::reader::StreamReader::try_new(file(), None).unwrap();
            reader.map(|batch| batch.unwrap().num_rows()).sum()
        }
        Format::Csv => {
            let text = std::fs::read_to_string(path).unwrap();
            let head = text.lines().next().unwrap();
            assert!(
                head.contains("ttl") || head.contains(",icmp_roh_31"),
                "{head}"
            );
            text.lines().count() - 1
        }
        Format::JsonLines => std::fs::read_to_string(path).unwrap().lines().count(),
        Format::Ipfix => unreachable!("refused"),
    }
}

#[test]
fn a_full_table_drops_no_packet() {
    let mut run = run("packet.v1");
    run.options.limits.most_flows = 3;
    run.schema = schema::find("packet.v1").unwrap();
    let (summary, rows) = json_rows(&run, &common::capture(50));
    assert_eq!(summary.counters.unaccounted(), 0);
    assert_eq!(rows.len() as u64, summary.counters.seen.packets);
    assert!(summary.counters.exported.table_full > 0);
}
