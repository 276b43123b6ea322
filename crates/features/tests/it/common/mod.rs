//! What tests of outputs share: a capture with every kind of flow, and runs over captures.

pub(crate) mod disk;
pub(crate) mod ipfix;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use features::Options;
use features::flow::{Direction, Flow};
use features::pcap::{Progress, Run, Summary};
use features::sink::{Error, SchemaRef, Sink, json_lines};
use packet::build;
use serde_json::Value;

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;
const FIN: u8 = 0x01;

/// Flows of each address family and transport, answered and not, `times` over.
pub(crate) fn capture(times: u16) -> Vec<u8> {
    let mut writer = packet::pcap::Writer::new(Vec::new(), 1).unwrap();
    let mut time = 1_600_000_000_123_456_789;
    let mut put = |frame: build::Builder| {
        time += 1_234_567;
        writer.write(time, &frame.frame()).unwrap();
    };
    for round in 0..times {
        for (client, server) in [("10.1.0.1", "10.2.0.1"), ("fd00::1", "fd00::2")] {
            let (client, server): (IpAddr, IpAddr) =
                (client.parse().unwrap(), server.parse().unwrap());
            let (a, b) = (
                SocketAddr::new(client, 10_000 + round),
                SocketAddr::new(server, 443),
            );
            put(build::tcp(a, b, SYN, 2));
            put(build::tcp(b, a, SYN | ACK, 2));
            put(build::tcp(a, b, ACK, 0).payload(vec![7; 100 + usize::from(round % 900)]));
            put(build::tcp(b, a, FIN | ACK, 0).payload(vec![7; 1000]));
            put(build::tcp(a, b, FIN | ACK, 0));
            put(build::udp(a, b).payload(vec![1; 33]));
            put(build::udp(b, a).payload(vec![1; 500]).ttl(9).tos(8));
            let other = SocketAddr::new(server, 53);
            put(build::udp(a, other).payload(vec![1; 20]).vlan(7));
        }
        let (a, b) = (
            Ipv4Addr::from_bits(0x0a03_0000 + u32::from(round)).into(),
            [10, 4, 0, 1].into(),
        );
        put(build::echo(a, b).payload(vec![2; 56]));
        put(build::other(a, b, 50).payload(vec![2; 80]));
    }
    writer.finish().unwrap()
}

/// The captures of the corpus, and the one that is always there.
pub(crate) fn captures() -> Vec<(String, Vec<u8>)> {
    let mut captures = vec![("made".to_owned(), capture(50))];
    let Some(folder) = sys::require::corpus() else {
        return captures;
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder.join("pcap"))
        .or_else(|_| std::fs::read_dir(&folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "pcap" || e == "pcapng")
        })
        .collect();
    paths.sort();
    for path in paths {
        captures.push((path.display().to_string(), std::fs::read(&path).unwrap()));
    }
    captures
}

pub(crate) fn run(schema: &str) -> Run {
    Run {
        options: Options::default(),
        schema: features::schema::find(schema).unwrap(),
    }
}

pub(crate) fn arrow_schema(schema: &str) -> SchemaRef {
    run(schema).arrow_schema()
}

/// Reads a capture into a sink.
pub(crate) fn write(capture: &[u8], schema: &str, sink: Box<dyn Sink>) -> Summary {
    run(schema).run(capture, sink, &Progress::default())
}

/// Keeps what it is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemorySink(pub(crate) Arc<Mutex<Vec<RecordBatch>>>);

impl Sink for MemorySink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.0.lock().unwrap().push(batch.clone());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        0
    }
}

/// The rows of a run in order, each as an object in JSON.
pub(crate) fn json_rows(run: &Run, capture: &[u8]) -> (Summary, Vec<Value>) {
    let kept = MemorySink::default();
    let summary = run.run(capture, Box::new(kept.clone()), &Progress::default());
    let mut json = Vec::new();
    for batch in &*kept.0.lock().unwrap() {
        json.extend(json_lines(batch).unwrap());
    }
    let text = String::from_utf8(json).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (summary, rows.collect())
}

/// The flows of a capture, in order.
pub(crate) fn flows(capture: &[u8]) -> Vec<Flow> {
    let mut flows = Vec::new();
    let mut extractor = features::Extractor::new(&Options::default(), |flow| flows.push(*flow));
    for captured in packet::pcap::Reader::new(capture).unwrap() {
        let Ok(captured) = captured else { break };
        extractor.frame(&captured.as_frame());
    }
    extractor.finish();
    flows
}

/// What a collector must have of a flow: its id, and packets and IP bytes both ways.
pub(crate) type Row = (u64, [u64; 4]);

pub(crate) fn expected(capture: &[u8]) -> Vec<Row> {
    let of = |side: &Direction| [side.packets(), side.ip_bytes];
    let row = |flow: &Flow| {
        let ([a, b], [c, d]) = (of(&flow.forward), of(&flow.backward));
        (flow.id(), [a, b, c, d])
    };
    flows(capture).iter().map(row).collect()
}

/// Fails with the rows that differ, not with all of them.
pub(crate) fn assert_same<T: Clone + std::fmt::Debug + Eq + std::hash::Hash>(
    name: &str,
    received: &[T],
    expected: &[T],
) {
    let mut balance: HashMap<T, i64> = HashMap::new();
    for row in received {
        *balance.entry(row.clone()).or_default() += 1;
    }
    for row in expected {
        *balance.entry(row.clone()).or_default() -= 1;
    }
    balance.retain(|_, count| *count != 0);
    let shown: Vec<_> = balance.iter().take(6).collect();
    assert!(
        balance.is_empty(),
        "{name}: {} received, {} expected, {} differ: {shown:#?}",
        received.len(),
        expected.len(),
        balance.len()
    );
}

/// Waits for a condition, never for time.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Below those that connections are given: whoever asks for a server that is gone must not take it.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let spread = u16::try_from(std::process::id() % 1000).unwrap() * 10;
        let port = 20_000 + spread + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
