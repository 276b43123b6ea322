//! Foreign messages on a stream's subject neither stop a publisher or receiver nor control it.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nats::{Api, Client};
use replicate::record::{Entry, Kind};
use replicate::ship::nats::{Error, Publisher, Receiver};
use replicate::ship::{Key, Sink};
use serde_json::json;
use tempfile::TempDir;
use test_support::nats_server::{self, Server, wait_until};

use crate::common::{data, epoch, link, new, start};
use crate::nats_peers::{
    OnDrop, STEP, Stop, assert_equal, last, options, publish, receive, single, write,
};

const SUBJECT: &str = "lowroad.log.APP";

/// A published log, a copy of it, and another client.
struct Bed {
    server: Server,
    folder: TempDir,
    key: Option<Key>,
    written: u64,
    /// Subscribes to every subject.
    other: Client,
}

impl Bed {
    fn start(signed: bool) -> Option<Self> {
        let server = Server::start("")?;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        Key::create(&path).unwrap();
        let other = Client::connect(&options(&server.url("APP"), None).connect).unwrap();
        let mut bed = Self {
            key: signed.then(|| Key::read(&path).unwrap()),
            folder,
            server,
            written: 0,
            other,
        };
        bed.write([start()]);
        Some(bed)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    fn publisher(&self) -> Publisher {
        let options = options(&self.server.url("APP"), self.key.clone());
        Publisher::new(&self.log(), options, single()).unwrap()
    }

    fn receiver(&self) -> Receiver {
        let sink = Sink::open(&self.copy()).unwrap();
        Receiver::new(sink, options(&self.server.url("APP"), self.key.clone()))
    }

    /// Appends the records and another epoch.
    fn write(&mut self, records: impl IntoIterator<Item = Entry>) {
        self.written += 1;
        let all = records.into_iter().chain([epoch(self.written)]);
        write(&self.log(), all);
    }

    fn write_file(&mut self) {
        let inode = 100 + self.written;
        let name = format!("f{inode}");
        self.write([
            new(inode, Kind::Regular),
            data(inode, 0, b"bytes"),
            link(2, &name, inode),
        ]);
    }

    /// Stores a message with these header bytes, or without a header.
    fn store(&mut self, header: &str, body: &[u8]) {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        let connect = "CONNECT {\"verbose\":false,\"headers\":true}\r\n";
        let total = header.len() + body.len();
        let mut sent = connect.to_owned();
        match header.len() {
            0 => write!(sent, "PUB {SUBJECT} {total}\r\n").unwrap(),
            length => write!(sent, "HPUB {SUBJECT} {length} {total}\r\n{header}").unwrap(),
        }
        let before = self.stored();
        stream.write_all(sent.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        stream.write_all(b"\r\nPING\r\n").unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"PONG\r\n") {
            let mut more = [0; 4096];
            let length = stream.read(&mut more).unwrap();
            assert_ne!(length, 0, "{}", String::from_utf8_lossy(&said));
            said.extend(&more[..length]);
        }
        wait_until("it is stored", || self.stored() == before + 1);
    }

    fn stored(&mut self) -> u64 {
        let stream = Api::new(None).stream(&mut self.other, "APP").unwrap();
        stream.unwrap().last
    }

    fn publish(&self, source: &mut Publisher) -> u64 {
        let progress = publish(source, last(&self.log())).unwrap();
        progress.foreign.count
    }

    fn receive(&self, edge: &mut Receiver) -> u64 {
        let progress = receive(edge, last(&self.log())).unwrap();
        assert_equal(&self.copy(), &self.log());
        progress.foreign.count
    }
}

/// A message like a server's own, which requests an answer to a subject.
fn status(subject: &str) -> String {
    format!("NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: {subject}\r\n\r\n")
}

#[test]
fn a_stored_message_that_looks_like_the_servers_is_not_obeyed() {
    for signed in [false, true] {
        let Some(mut bed) = Bed::start(signed) else {
            return;
        };
        let heard = bed.other.subscribe("victim.>").unwrap();
        let (mut source, mut edge) = (bed.publisher(), bed.receiver());
        bed.publish(&mut source);
        bed.receive(&mut edge);
        let headers = [
            status("victim.subject"),
            status("$JS.API.STREAM.DELETE.APP"),
            "NATS/1.0 409 Consumer Deleted\r\n\r\n".to_owned(),
            "NATS/1.0 100 FlowControl Request\r\nNats-Last-Consumer: 99\r\n\r\n".to_owned(),
        ];
        for (header, count) in headers.iter().zip(1..) {
            bed.store(header, b"");
            bed.write_file();
            bed.publish(&mut source);
            assert_eq!(bed.receive(&mut edge), count);
        }
        // Receivers that start afterwards meet all of the messages.
        let mut source = bed.publisher();
        bed.write_file();
        bed.publish(&mut source);
        std::fs::remove_dir_all(bed.copy()).unwrap();
        let mut edge = bed.receiver();
        assert_eq!(bed.receive(&mut edge), 4);
        let progress = edge.step(STEP).unwrap();
        let named = progress.foreign.last.unwrap();
        assert!(named.contains("is no part of a log"), "{named}");
        bed.other.flush().unwrap();
        while let Some(message) = bed.other.next(Duration::from_millis(100)).unwrap() {
            assert_ne!(message.subscription, heard, "{message:?}");
        }
    }
}

#[test]
fn messages_of_others_before_behind_and_among_those_of_the_log_are_passed_over() {
    let Some(mut bed) = Bed::start(false) else {
        return;
    };
    // Invalid text, and more bytes than the messages of a log have.
    let bodies = [b"good day".to_vec(), vec![0xff; 900_000], Vec::new()];
    let header = "NATS/1.0\r\nA: \u{7f}\r\n\r\n";
    let mut source = bed.publisher();
    bed.publish(&mut source);
    let mut edge = bed.receiver();
    bed.receive(&mut edge);
    for round in 0..6 {
        for body in &bodies {
            bed.store(if round % 2 == 0 { header } else { "" }, body);
        }
        if round % 2 == 1 {
            source = bed.publisher();
            drop(edge);
            edge = bed.receiver();
        }
        bed.write_file();
        bed.publish(&mut source);
        bed.receive(&mut edge);
    }
    let mut fresh = bed.publisher();
    bed.write_file();
    bed.publish(&mut fresh);
    std::fs::remove_dir_all(bed.copy()).unwrap();
    let mut edge = bed.receiver();
    assert_eq!(bed.receive(&mut edge), 18);
}

#[test]
fn a_message_of_another_log_in_a_stream_is_skipped() {
    let (Some(mut bed), Some(mut forger)) = (Bed::start(false), Bed::start(false)) else {
        return;
    };
    forger.publish(&mut forger.publisher());
    let forged = Api::new(None).message(&mut forger.other, "APP", 1);
    let forged = forged.unwrap().unwrap().body;
    let mut source = bed.publisher();
    bed.publish(&mut source);
    let mut edge = bed.receiver();
    bed.receive(&mut edge);
    bed.store("", &forged);
    bed.write_file();
    assert_eq!(bed.publish(&mut source), 1);
    assert_eq!(bed.receive(&mut edge), 1);
    bed.store("", &forged);
    let mut source = bed.publisher();
    bed.write_file();
    assert_eq!(bed.publish(&mut source), 1);
    drop(edge);
    assert_eq!(bed.receive(&mut bed.receiver()), 1);
    // A stream that begins with another log belongs to another publisher.
    let options = options(&forger.server.url("APP"), None);
    let mut source = Publisher::new(&bed.log(), options, single()).unwrap();
    let error = publish(&mut source, u64::MAX).unwrap_err();
    assert!(error.to_string().contains("another log"), "{error}");
}

#[test]
fn a_publisher_says_that_it_is_there_to_who_asks_from_an_inbox_only() {
    let Some(mut bed) = Bed::start(false) else {
        return;
    };
    let mut source = bed.publisher();
    bed.publish(&mut source);
    let heard = bed.other.subscribe("victim.>").unwrap();
    let inbox = bed.other.inbox("here");
    for reply in ["victim.x", "lowroad.log.APP", &inbox] {
        bed.other.publish("lowroad.publisher.APP", reply, &[], b"");
    }
    bed.other.flush().unwrap();
    let mut answered = None;
    wait_until("it answers", || {
        source.step(STEP).unwrap();
        answered = bed.other.next(Duration::ZERO).unwrap();
        answered.is_some()
    });
    let answered = answered.unwrap();
    assert_eq!(answered.subject, inbox);
    assert_ne!(answered.subscription, heard);
    assert_eq!(bed.stored(), 1);
}

#[test]
fn a_stream_that_the_servers_have_lost_is_made_and_published_again() {
    let Some(mut bed) = Bed::start(true) else {
        return;
    };
    let (mut source, mut edge) = (bed.publisher(), bed.receiver());
    for _ in 0..3 {
        bed.write_file();
        bed.publish(&mut source);
        bed.receive(&mut edge);
    }
    bed.server.kill();
    bed.server.forget_streams();
    bed.server.revive();
    // Before anything new.
    bed.publish(&mut source);
    bed.write_file();
    bed.publish(&mut source);
    bed.receive(&mut edge);
    std::fs::remove_dir_all(bed.copy()).unwrap();
    bed.receive(&mut bed.receiver());
    let progress = source.step(STEP).unwrap();
    assert_eq!(progress.lost, 1);
    // And one that an operator removes.
    bed.other = Client::connect(&options(&bed.server.url("APP"), None).connect).unwrap();
    Api::new(None)
        .request(&mut bed.other, "STREAM.DELETE.APP", &json!({}))
        .unwrap();
    bed.write_file();
    bed.publish(&mut source);
    bed.receive(&mut bed.receiver());
}

/// The server configuration in the documentation has exactly these permissions.
#[test]
fn the_permissions_that_the_documentation_names_are_enough() {
    const DOCUMENT: &str = include_str!("../../../../docs/src/replicate-nats.md");
    let begin = DOCUMENT.find("authorization {").unwrap();
    let end = begin + DOCUMENT[begin..].find("```").unwrap();
    let users = DOCUMENT[begin..end].replace("\"...\"", "\"secret\"");
    let Some(server) = Server::start(&users) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (log, copy) = (folder.path().join("log"), folder.path().join("copy"));
    write(&log, [start(), epoch(1)]);
    let login = |user: &str, stream: &str| {
        let url = format!("nats://{user}:secret@{}/{stream}", server.address());
        options(&url, None)
    };
    let mut source = Publisher::new(&log, login("publisher", "APP"), single()).unwrap();
    publish(&mut source, 2).unwrap();
    let mut edge = Receiver::new(Sink::open(&copy).unwrap(), login("receiver", "APP"));
    receive(&mut edge, 2).unwrap();
    // Flow control, a search from the middle, a deleted consumer, a second publisher.
    for inode in 10..40 {
        let bytes = vec![7; 100_000];
        let file = [
            new(inode, Kind::Regular),
            data(inode, 0, &bytes),
            epoch(inode),
        ];
        write(&log, file);
        publish(&mut source, last(&log)).unwrap();
    }
    receive(&mut edge, last(&log)).unwrap();
    drop(edge);
    write(&log, [epoch(100)]);
    publish(&mut source, last(&log)).unwrap();
    let mut edge = Receiver::new(Sink::open(&copy).unwrap(), login("receiver", "APP"));
    receive(&mut edge, last(&log)).unwrap();
    assert_equal(&copy, &log);
    let mut second = Publisher::new(&log, login("publisher", "APP"), single()).unwrap();
    let stop = Stop::default();
    let taken = thread::scope(|scope| {
        let _stop = OnDrop(&stop);
        scope.spawn(|| {
            while !stop.requested() {
                source.step(STEP).unwrap();
            }
        });
        publish(&mut second, u64::MAX).unwrap_err()
    });
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    // Anything else is not permitted.
    for (user, subject) in [
        ("receiver", "$JS.API.STREAM.DELETE.APP"),
        ("receiver", "$JS.API.STREAM.INFO.OTHER"),
        ("receiver", SUBJECT),
        ("publisher", "$JS.API.STREAM.DELETE.APP"),
        ("publisher", "$JS.API.CONSUMER.CREATE.APP"),
        ("publisher", "lowroad.log.OTHER"),
    ] {
        let mut client = Client::connect(&login(user, "APP").connect).unwrap();
        let error = client
            .request(subject, b"", nats_server::TIMEOUT)
            .unwrap_err();
        let refused = matches!(error, nats::Error::Refused { .. });
        assert!(refused, "{user} {subject}: {error}");
    }
}
