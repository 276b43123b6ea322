//! IPFIX as its readers see it: files, datagrams, and connections that end and come back.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use features::batch::Batcher;
use features::flow::Limits;
use features::sink::ipfix::{TcpExporter, UdpExporter};
use features::sink::{FileSink, Format, Mode, Rotation, Sink};

use crate::common;
use crate::common::ipfix::DecodedStream;
use crate::common::{arrow_schema, assert_same, capture, captures, expected, write};

#[test]
fn a_file_has_every_flow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.ipfix");
    for (name, capture) in captures() {
        let schema = arrow_schema("ipfix");
        let none = Rotation::default();
        let sink = FileSink::create(&path, Format::Ipfix, &schema, none, Mode::Whole).unwrap();
        write(&capture, "ipfix", Box::new(sink));
        let decoded = DecodedStream::of(&std::fs::read(&path).unwrap());
        assert_same(&name, &decoded.flows(), &expected(&capture));
    }
}

#[test]
fn datagrams_are_short_and_templates_are_repeated() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // Room for all of them, whenever the reader has its turn.
    sys::socket::receive_buffer(collector.as_fd(), 4 << 20).unwrap();
    let address = collector.local_addr().unwrap().to_string();
    let capture = capture(400);
    let rows = expected(&capture).len();
    let reader = thread::spawn(move || {
        let mut decoded = DecodedStream::default();
        let mut message = [0; 65_536];
        while decoded.records.len() < rows
            && let Ok(length) = collector.recv(&mut message)
        {
            decoded.message(&message[..length]);
        }
        decoded
    });
    let sink = UdpExporter::connect(&address, &arrow_schema("ipfix"), 3).unwrap();
    let summary = write(&capture, "ipfix", Box::new(sink));
    assert_eq!(summary.lost_rows, 0);
    let decoded = reader.join().unwrap();
    assert_same("datagrams", &decoded.flows(), &expected(&capture));
    assert!(decoded.longest <= 1400);
    assert!(decoded.messages > 256 && decoded.template_records > 12);
}

#[test]
fn what_a_closed_port_refuses_is_counted() {
    let closed = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let capture = capture(50);
    let schema = arrow_schema("ipfix");
    let sink = UdpExporter::connect(&closed.to_string(), &schema, 0).unwrap();
    let summary = write(&capture, "ipfix", Box::new(sink));
    let rows = expected(&capture).len() as u64;
    assert_eq!((summary.rows, summary.lost_rows), (0, rows));
}

/// Batches of a capture's rows, as a run would make them.
fn batches(capture: &[u8], rows: usize) -> Vec<RecordBatch> {
    let schema = features::schema::find("ipfix").unwrap();
    let batcher = Batcher::new("ipfix", schema.flow_columns().unwrap(), &Limits::default());
    let flows = common::flows(capture);
    flows
        .chunks(rows)
        .map(|rows| {
            let rows: Vec<_> = rows.iter().cloned().map(Box::new).collect();
            batcher.batch(&rows).unwrap()
        })
        .collect()
}

fn tcp(address: SocketAddr, mode: Mode) -> TcpExporter {
    TcpExporter::connect(&address.to_string(), &arrow_schema("ipfix"), 0, mode).unwrap()
}

fn read_all(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_connection_has_every_flow() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = thread::spawn(move || DecodedStream::of(&read_all(listener.accept().unwrap().0)));
    let capture = capture(300);
    let summary = write(&capture, "ipfix", Box::new(tcp(address, Mode::Whole)));
    assert_eq!(summary.lost_rows, 0);
    assert_same("tcp", &reader.join().unwrap().flows(), &expected(&capture));
}

/// Whole messages at the beginning.
fn whole(bytes: &[u8]) -> &[u8] {
    let mut end = 0;
    while let Some(header) = bytes.get(end..end + 4) {
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if bytes.len() < end + length {
            break;
        }
        end += length;
    }
    &bytes[..end]
}

#[test]
fn a_collector_that_comes_back_has_everything() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (again, wait) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut first = listener.accept().unwrap().0;
        drop(listener);
        let mut bytes = vec![0; 100_000];
        first.read_exact(&mut bytes).unwrap();
        // What it has not read dies with it, and the kernel says so.
        drop(first);
        wait.recv().unwrap();
        let listener = TcpListener::bind(address).unwrap();
        let second = read_all(listener.accept().unwrap().0);
        (bytes, second)
    });
    let capture = capture(600);
    let mut sink = tcp(address, Mode::Whole);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        again.send(()).unwrap();
    });
    for batch in batches(&capture, 100) {
        sink.write(&batch).unwrap();
    }
    sink.finish().unwrap();
    assert_eq!(sink.lost(), 0);
    drop(sink);
    let (first, second) = reader.join().unwrap();
    let mut received = DecodedStream::of(whole(&first)).flows();
    received.extend(DecodedStream::of(&second).flows());
    received.sort_unstable();
    received.dedup();
    let mut expected = expected(&capture);
    expected.sort_unstable();
    // Acknowledged by the collector's kernel, and never read by it: nobody but it can know.
    let unread = expected.len() - received.len();
    assert!(received.iter().all(|row| expected.contains(row)));
    assert!(unread < 4000, "{unread} of {}", expected.len());
}

#[test]
fn a_live_run_counts_what_a_missing_collector_does_not_get() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut sink = tcp(address, Mode::Live);
    let first = listener.accept().unwrap().0;
    let capture = capture(3000);
    let batches = batches(&capture, 64);
    let (begin, rest) = batches.split_at(10);
    for batch in begin {
        sink.write(batch).unwrap();
    }
    // The collector reads what it has been sent, and ends.
    let mut bytes = Vec::new();
    first.set_nonblocking(true).unwrap();
    while read_now(&first, &mut bytes) < 640 {}
    drop(first);
    drop(listener);
    let (gone, back) = rest.split_at(rest.len() - 20);
    for batch in gone {
        sink.write(batch).unwrap();
    }
    let lost_while_gone = sink.lost();
    assert!(lost_while_gone > 0, "there is room for everything");
    let listener = TcpListener::bind(address).unwrap();
    let reader = thread::spawn(move || read_all(listener.accept().unwrap().0));
    common::wait_until("connected again", || {
        sink.idle();
        sink.is_connected()
    });
    for batch in back {
        sink.write(batch).unwrap();
    }
    // A collector that takes nothing for seconds is given up: what it takes later is counted as lost as well.
    let given_up = sink.finish().is_err();
    let lost = sink.lost();
    drop(sink);
    let second = DecodedStream::of(&reader.join().unwrap()).flows().len();
    let received = DecodedStream::of(&bytes).flows().len() + second;
    let (told, given) = (received as u64 + lost, expected(&capture).len() as u64);
    assert!(
        told == given || given_up && told > given,
        "{told} of {given}"
    );
}

fn read_now(mut stream: &TcpStream, bytes: &mut Vec<u8>) -> usize {
    let _ = stream.read_to_end(bytes);
    DecodedStream::of(whole(bytes)).records.len()
}
