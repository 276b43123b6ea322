//! Rows in a NATS stream, from a server that is there, one that dies and comes back, and one without
//! the stream.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ::nats::{Api, Client, Delivery, Options, StoredMessage};
use arrow_array::RecordBatch;
use features::sink::{Error, Mode, NatsSink, Sink};
use serde_json::{Value, json};
use sys::child::die_with_parent;
use sys::require::{Class, skip};
use tempfile::TempDir;

use crate::common::{self, assert_same, capture, expected, free_port, wait_until, write};

struct Server(Child);

impl Server {
    fn start(port: u16, folder: &Path) -> Self {
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]);
        command
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = die_with_parent(&mut command).spawn().unwrap();
        wait_until("the server listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_missing() -> bool {
    let missing = Command::new("nats-server")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err();
    if missing {
        skip(Class::Core, "needs nats-server");
    }
    missing
}

/// A server with a folder of its own, which may die and come back.
struct Host {
    // Dropped in this order: the server writes into its folder.
    server: Option<Server>,
    folder: TempDir,
    port: u16,
}

impl Host {
    /// One that runs; none where there is no such program.
    fn start() -> Option<Self> {
        if is_missing() {
            return None;
        }
        let mut host = Self {
            server: None,
            folder: tempfile::tempdir().unwrap(),
            port: free_port(),
        };
        host.revive();
        Some(host)
    }

    fn revive(&mut self) {
        self.server = Some(Server::start(self.port, self.folder.path()));
    }

    fn kill(&mut self) {
        self.server = None;
    }
}

/// A client that manages the stream and reads it.
struct Consumer {
    client: Client,
    api: Api,
}

impl Consumer {
    fn connect(port: u16) -> Self {
        let options = Options {
            servers: vec![format!("127.0.0.1:{port}")],
            ..Options::default()
        };
        Self {
            client: Client::connect(&options).unwrap(),
            api: Api::new(None),
        }
    }

    /// Repeats a call until it succeeds, because the server may just have started.
    fn retry<T>(&mut self, call: impl Fn(&Api, &mut Client) -> Option<T>) -> T {
        let mut result = None;
        wait_until("the stream interface answers", || {
            result = call(&self.api, &mut self.client);
            result.is_some()
        });
        result.unwrap()
    }

    fn create_stream(&mut self) {
        let stream = json!({"name": "FLOWS", "subjects": ["flows.>"], "storage": "file"});
        self.retry(|api, client| {
            let created = api.request(client, "STREAM.CREATE.FLOWS", &stream);
            created.ok()
        });
    }

    /// Messages in the stream.
    fn count(&mut self) -> u64 {
        let stream = self.retry(|api, client| api.stream(client, "FLOWS").ok()?);
        stream.messages
    }

    /// Every message in the stream.
    fn stored(&mut self) -> Vec<StoredMessage> {
        let mut consumer = self.retry(|api, client| api.consume(client, "FLOWS", 1).ok());
        let mut stored = Vec::new();
        loop {
            let message = self.client.next(Duration::from_secs(30)).unwrap();
            let message = message.expect("the next message");
            match consumer.handle(&mut self.client, message) {
                Delivery::Message { message, pending } => {
                    stored.push(message);
                    if pending == 0 {
                        return stored;
                    }
                }
                Delivery::Other => {}
                Delivery::Foreign => panic!("a message of another sender"),
                Delivery::Gap => panic!("a gap after {} messages", stored.len()),
            }
        }
    }
}

/// A sink that tells how many rows it has lost while it runs.
struct MonitoredSink {
    sink: NatsSink,
    lost: Arc<AtomicU64>,
}

impl Sink for MonitoredSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let result = self.sink.write(batch);
        self.lost.store(self.sink.lost(), Ordering::Relaxed);
        result
    }

    fn idle(&mut self) {
        self.sink.idle();
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.sink.finish()
    }

    fn lost(&self) -> u64 {
        self.sink.lost()
    }
}

fn row(stored: &StoredMessage) -> common::Row {
    let row: Value = serde_json::from_slice(&stored.body).unwrap();
    let number = |name: &str| row[name].as_u64().unwrap();
    let id = number("flow_id");
    let header = stored.header("Flow-Id");
    assert_eq!(header, Some(id.to_string().as_str()));
    let counts = ["fwd_packets", "fwd_ip_bytes", "bwd_packets", "bwd_ip_bytes"];
    (id, counts.map(number))
}

fn sink(port: u16, mode: Mode) -> NatsSink {
    NatsSink::connect(&format!("127.0.0.1:{port}/flows.test"), None, mode).unwrap()
}

#[test]
fn a_stream_has_every_row_under_its_flow() {
    let Some(host) = Host::start() else { return };
    let port = host.port;
    let mut consumer = Consumer::connect(port);
    consumer.create_stream();
    let capture = capture(500);
    let summary = write(&capture, "flow.v1", Box::new(sink(port, Mode::Whole)));
    assert_eq!(summary.lost_rows, 0, "{:?}", summary.output);
    let stored: Vec<_> = consumer.stored().iter().map(row).collect();
    assert_same("nats", &stored, &expected(&capture));
}

#[test]
fn a_server_that_dies_and_comes_back_has_every_row_once() {
    let Some(mut host) = Host::start() else {
        return;
    };
    let port = host.port;
    Consumer::connect(port).create_stream();
    let capture = capture(1500);
    let sink = sink(port, Mode::Whole);
    let summary = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&capture, "flow.v1", Box::new(sink)));
        let mut watcher = Consumer::connect(port);
        wait_until("some rows are stored", || watcher.count() > 100);
        host.kill();
        host.revive();
        writer.join().unwrap()
    });
    assert_eq!(summary.lost_rows, 0, "{:?}", summary.output);
    let mut consumer = Consumer::connect(port);
    let stored: Vec<_> = consumer.stored().iter().map(row).collect();
    assert_same("nats", &stored, &expected(&capture));
}

#[test]
fn a_subject_without_a_stream_is_refused_and_the_rows_are_counted() {
    let Some(host) = Host::start() else { return };
    let port = host.port;
    let capture = capture(20);
    let summary = write(&capture, "flow.v1", Box::new(sink(port, Mode::Whole)));
    let rows = expected(&capture).len() as u64;
    assert_eq!((summary.rows, summary.lost_rows), (0, rows));
    let error = summary.output.unwrap().to_string();
    assert!(error.contains("no stream takes this subject"), "{error}");
}

#[test]
fn a_live_run_counts_what_a_missing_server_does_not_get() {
    let Some(mut host) = Host::start() else {
        return;
    };
    let port = host.port;
    Consumer::connect(port).create_stream();
    let lost = Arc::new(AtomicU64::new(0));
    let sink = MonitoredSink {
        sink: sink(port, Mode::Live),
        lost: Arc::clone(&lost),
    };
    host.kill();
    let capture = capture(4000);
    let rows = expected(&capture).len() as u64;
    assert!(rows > 30_000, "{rows}");
    let summary = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&capture, "flow.v1", Box::new(sink)));
        wait_until("rows are lost", || lost.load(Ordering::Relaxed) > 0);
        host.revive();
        writer.join().unwrap()
    });
    assert_eq!(summary.rows + summary.lost_rows, rows);
    assert!(summary.lost_rows > 0, "{summary:?}");
    let stored = Consumer::connect(port).count();
    // A server that answers nothing for seconds at the end is given up: what it stored by then counts as lost.
    let given_up = summary.output.is_some();
    assert!(
        stored == summary.rows || given_up && stored > summary.rows,
        "{stored} stored: {summary:?}"
    );
}
