//! What conn.v1 says of connections that are made here segment by segment: letters and states derived by hand
//! from the rules of Zeek's conn.log, and from captures from outside beside tshark.

mod fingerprint;
mod numbers;
mod states;
mod tshark;

use std::net::SocketAddr;

use packet::{build, checksum, pcap};
use serde_json::Value;

use crate::common::{json_rows, run};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const ECE: u8 = 0x40;

const ETHERNET: usize = 14;
const IPV6: usize = 40;

const MILLISECOND: i64 = 1_000_000;

/// A TCP segment from the client, or from the server.
#[derive(Clone, Debug)]
struct Segment {
    from_client: bool,
    /// After the segment before it.
    gap_ns: i64,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    window: u16,
    urgent: u16,
    options: Vec<u8>,
    payload: usize,
    is_wrong: bool,
}

fn client(flags: u8, sequence: u32, acknowledgement: u32, payload: usize) -> Segment {
    Segment {
        from_client: true,
        gap_ns: MILLISECOND,
        flags,
        sequence,
        acknowledgement,
        window: 1000,
        urgent: 0,
        options: Vec::new(),
        payload,
        is_wrong: false,
    }
}

fn server(flags: u8, sequence: u32, acknowledgement: u32, payload: usize) -> Segment {
    Segment {
        from_client: false,
        ..client(flags, sequence, acknowledgement, payload)
    }
}

impl Segment {
    fn after(self, gap_ns: i64) -> Self {
        Self { gap_ns, ..self }
    }

    fn window(self, window: u16) -> Self {
        Self { window, ..self }
    }

    fn options(self, options: impl Into<Vec<u8>>) -> Self {
        Self {
            options: options.into(),
            ..self
        }
    }

    /// With a timestamps option.
    fn stamped(self, value: u32, echo: u32) -> Self {
        let [value, echo] = [value, echo].map(u32::to_be_bytes);
        self.options([&[1, 1, 8, 10][..], &value, &echo].concat())
    }

    /// With a checksum that does not fit.
    fn damaged(self) -> Self {
        Self {
            is_wrong: true,
            ..self
        }
    }

    fn frame(&self) -> Vec<u8> {
        let (client, server) = ends();
        let (from, to) = if self.from_client {
            (client, server)
        } else {
            (server, client)
        };
        self.between(from, to, |builder| builder)
    }

    fn between(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        change: impl Fn(build::Builder) -> build::Builder,
    ) -> Vec<u8> {
        let words = u8::try_from(self.options.len() / 4).unwrap();
        let builder = build::tcp(from, to, self.flags, words).payload(vec![7; self.payload]);
        let mut frame = change(builder).frame();
        let ip = if from.is_ipv4() {
            usize::from(frame[ETHERNET] & 0x0f) * 4
        } else {
            IPV6
        };
        let tcp = &mut frame[ETHERNET + ip..];
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        tcp[14..16].copy_from_slice(&self.window.to_be_bytes());
        tcp[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        tcp[20..20 + self.options.len()].copy_from_slice(&self.options);
        tcp[16..18].copy_from_slice(&[0, 0]);
        let length = u32::try_from(tcp.len()).unwrap();
        let pseudo = checksum::pseudo(from.ip(), to.ip(), 6, length);
        let check = !checksum::fold(pseudo + checksum::sum(tcp));
        let check = check.wrapping_add(u16::from(self.is_wrong));
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        frame
    }
}

fn ends() -> (SocketAddr, SocketAddr) {
    let end = |text: &str| text.parse().unwrap();
    (end("10.0.0.1:40000"), end("10.0.0.2:80"))
}

/// SYN, SYN with ACK, and ACK. Both sides start at 100.
fn handshake() -> Vec<Segment> {
    vec![
        client(SYN, 100, 0, 0),
        server(SYN | ACK, 100, 101, 0),
        client(ACK, 101, 101, 0),
    ]
}

/// A capture of these segments.
fn capture(segments: &[Segment]) -> Vec<u8> {
    let mut writer = pcap::Writer::new(Vec::new(), pcap::ETHERNET).unwrap();
    let mut time_ns = 1_600_000_000_000_000_000;
    for segment in segments {
        time_ns += segment.gap_ns;
        writer.write(time_ns, &segment.frame()).unwrap();
    }
    writer.finish().unwrap()
}

/// The rows of conn.v1.
fn rows(capture: &[u8]) -> Vec<Value> {
    let (summary, rows) = json_rows(&run("conn.v1"), capture);
    assert_eq!(summary.counters.unaccounted(), 0);
    rows
}

/// The row of a single connection.
fn row(segments: &[Segment]) -> Value {
    let mut rows = rows(&capture(segments));
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}
