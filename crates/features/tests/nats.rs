//! Rows in a NATS stream, from a server that is there, one that dies and comes back, and one without
//! the stream.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod common;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{assert_same, capture, expected, free_port, wait_until, write};
use features::sink::{Mode, NatsSink};
use serde_json::{Value, json};
use sys::child::die_with_parent;
use sys::require::{Class, skip};
use tempfile::TempDir;

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

/// A client that asks and listens.
struct Client {
    stream: BufReader<TcpStream>,
    /// Rows that came while an answer was waited for: a consumer may send before its creation is
    /// confirmed.
    rows: VecDeque<Message>,
}

/// A message's headers and its body.
type Message = (String, String);

/// The subscriptions by their numbers.
const REPLIES: &str = "1";
const ROWS: &str = "2";

impl Client {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut client = Self {
            stream: BufReader::new(stream),
            rows: VecDeque::new(),
        };
        client.send("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB reply 1\r\nSUB rows 2\r\n");
        client
    }

    fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// The next answer.
    fn answer(&mut self) -> String {
        loop {
            match self.message() {
                (subscription, message) if subscription == REPLIES => return message.1,
                (_, message) => self.rows.push_back(message),
            }
        }
    }

    /// The next row.
    fn row(&mut self) -> Message {
        if let Some(row) = self.rows.pop_front() {
            return row;
        }
        loop {
            let (subscription, message) = self.message();
            if subscription == ROWS {
                return message;
            }
        }
    }

    /// The next message, and the subscription that it is for.
    fn message(&mut self) -> (String, Message) {
        loop {
            let mut line = String::new();
            assert!(
                self.stream.read_line(&mut line).unwrap() > 0,
                "the server is gone"
            );
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            let number = |back: usize| words[words.len() - back].parse::<usize>().unwrap();
            let (head, all) = match words[0] {
                "MSG" => (0, number(1)),
                "HMSG" => (number(2), number(1)),
                "PING" => {
                    self.send("PONG\r\n");
                    continue;
                }
                _ => continue,
            };
            let mut bytes = vec![0; all + 2];
            self.stream.read_exact(&mut bytes).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            let message = (text[..head].to_owned(), text[head..all].to_owned());
            return (words[2].to_owned(), message);
        }
    }

    /// Asks the stream interface; an error is tried again, as the server may just have started.
    fn ask(&mut self, what: &str, question: &Value) -> Value {
        loop {
            let text = question.to_string();
            let length = text.len();
            self.send(&format!("PUB $JS.API.{what} reply {length}\r\n{text}\r\n"));
            if let Ok(answer) = serde_json::from_str::<Value>(&self.answer())
                && answer.get("error").is_none()
            {
                return answer;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn create_stream(&mut self) {
        let stream = json!({"name": "FLOWS", "subjects": ["flows.>"], "storage": "file"});
        self.ask("STREAM.CREATE.FLOWS", &stream);
    }

    /// Messages in the stream.
    fn count(&mut self) -> u64 {
        let info = self.ask("STREAM.INFO.FLOWS", &json!({}));
        info["state"]["messages"].as_u64().unwrap()
    }

    /// Headers and rows of every message in the stream.
    fn stored(&mut self) -> Vec<(String, Value)> {
        let count = self.count();
        let config =
            json!({"deliver_subject": "rows", "ack_policy": "none", "deliver_policy": "all"});
        self.ask(
            "CONSUMER.CREATE.FLOWS",
            &json!({"stream_name": "FLOWS", "config": config}),
        );
        (0..count)
            .map(|_| {
                let (head, body) = self.row();
                (head, serde_json::from_str(&body).unwrap())
            })
            .collect()
    }
}

fn row(stored: &(String, Value)) -> common::Row {
    let (head, row) = stored;
    let number = |name: &str| row[name].as_u64().unwrap();
    let id = number("flow_id");
    assert!(head.contains(&format!("Flow-Id: {id}\r\n")), "{head}");
    let counts = ["fwd_packets", "fwd_ip_bytes", "bwd_packets", "bwd_ip_bytes"];
    (id, counts.map(number))
}

fn sink(port: u16, mode: Mode) -> NatsSink {
    NatsSink::connect(&format!("127.0.0.1:{port}/flows.test"), mode).unwrap()
}

#[test]
fn a_stream_has_every_row_under_its_flow() {
    let Some(host) = Host::start() else { return };
    let port = host.port;
    let mut client = Client::connect(port);
    client.create_stream();
    let capture = capture(500);
    let summary = write(&capture, "flow.v1", Box::new(sink(port, Mode::Whole)));
    assert_eq!(summary.lost_rows, 0, "{:?}", summary.output);
    let stored: Vec<_> = client.stored().iter().map(row).collect();
    assert_same("nats", &stored, &expected(&capture));
}

#[test]
fn a_server_that_dies_and_comes_back_has_every_row_once() {
    let Some(mut host) = Host::start() else {
        return;
    };
    let port = host.port;
    Client::connect(port).create_stream();
    let capture = capture(1500);
    let sink = sink(port, Mode::Whole);
    let summary = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&capture, "flow.v1", Box::new(sink)));
        let mut watcher = Client::connect(port);
        wait_until("some rows are stored", || watcher.count() > 100);
        host.kill();
        host.revive();
        writer.join().unwrap()
    });
    assert_eq!(summary.lost_rows, 0, "{:?}", summary.output);
    let mut client = Client::connect(port);
    let stored: Vec<_> = client.stored().iter().map(row).collect();
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
    Client::connect(port).create_stream();
    let sink = sink(port, Mode::Live);
    host.kill();
    let capture = capture(4000);
    let rows = expected(&capture).len() as u64;
    assert!(rows > 30_000, "{rows}");
    let summary = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&capture, "flow.v1", Box::new(sink)));
        thread::sleep(Duration::from_millis(500));
        host.revive();
        writer.join().unwrap()
    });
    assert_eq!(summary.rows + summary.lost_rows, rows);
    let stored = Client::connect(port).count();
    // A server that answers nothing for seconds at the end is given up: what it stored by then counts as lost.
    let given_up = summary.output.is_some();
    assert!(
        stored == summary.rows || given_up && stored > summary.rows,
        "{stored} stored: {summary:?}"
    );
}
