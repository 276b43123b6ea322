//! What a broker could do to messages, and receivers that have the key refuse.

use nats::{Api, Client};
use replicate::record::Kind;
use replicate::ship::nats::{Error, Publisher, Received, Receiver};
use replicate::ship::{Key, Sink};
use serde_json::json;
use test_support::nats_server::{self, Server, wait_until};

use crate::common::{data, epoch, new, start};
use crate::nats_peers::{STEP, assert_equal, options, publish, receive, records, single, write};

/// A server whose streams an attacker rewrites.
struct Broker {
    server: Server,
    client: Client,
    keys: tempfile::TempDir,
}

impl Broker {
    fn start() -> Option<Self> {
        let server = Server::start("")?;
        let client = Client::connect(&options(&server.url("S"), None).connect).unwrap();
        let keys = tempfile::tempdir().unwrap();
        for name in ["ours", "other"] {
            Key::create(&keys.path().join(name)).unwrap();
        }
        Some(Self {
            server,
            client,
            keys,
        })
    }

    fn key(&self, name: &str) -> Option<Key> {
        Some(Key::read(&self.keys.path().join(name)).unwrap())
    }

    fn messages(&mut self, stream: &str) -> Vec<Vec<u8>> {
        let api = Api::new(None);
        let last = api.stream(&mut self.client, stream).unwrap().unwrap().last;
        let mut message = |at| api.message(&mut self.client, stream, at).unwrap().unwrap();
        (1..=last).map(|at| message(at).body).collect()
    }

    /// Another stream, of these messages.
    fn forge(&mut self, stream: &str, messages: &[Vec<u8>]) {
        let api = Api::new(None);
        let config = json!({ "name": stream, "subjects": [stream], "storage": "file" });
        let what = format!("STREAM.CREATE.{stream}");
        api.request(&mut self.client, &what, &config).unwrap();
        for message in messages {
            let wait = nats_server::TIMEOUT;
            let answer = self.client.request(stream, message, wait).unwrap();
            nats::parse_response(&answer.body).unwrap();
        }
    }

    /// What a new receiver with the key has of a stream, or why not.
    fn received(&self, stream: &str, key: Option<Key>) -> Result<usize, Error> {
        let copy = tempfile::tempdir().unwrap();
        let sink = Sink::open(copy.path()).unwrap();
        let mut edge = Receiver::new(sink, options(&self.server.url(stream), key));
        receive(&mut edge, 13)?;
        Ok(records(copy.path()).len())
    }

    /// The error of a new receiver when it has skipped this many messages.
    fn passed_over(&self, stream: &str, key: Option<Key>, count: u64) -> Received {
        let copy = tempfile::tempdir().unwrap();
        let sink = Sink::open(copy.path()).unwrap();
        let mut edge = Receiver::new(sink, options(&self.server.url(stream), key));
        let mut seen = Received::default();
        wait_until("they are passed over", || {
            seen = edge.step(STEP).unwrap();
            seen.foreign.count == count
        });
        assert!(records(copy.path()).is_empty());
        seen
    }
}

#[test]
fn what_was_not_signed_with_the_key_is_refused() {
    let Some(mut broker) = Broker::start() else {
        return;
    };
    let log = tempfile::tempdir().unwrap();
    let url = broker.server.url("SIGNED");
    let mut source =
        Publisher::new(log.path(), options(&url, broker.key("ours")), single()).unwrap();
    for round in 0..4 {
        let begin = (round == 0).then(start);
        let inode = 10 + round;
        let file = [
            new(inode, Kind::Regular),
            data(inode, 0, b"x"),
            epoch(inode),
        ];
        write(log.path(), begin.into_iter().chain(file));
        publish(&mut source, 4 + 3 * round).unwrap();
    }
    drop(source);
    let messages = broker.messages("SIGNED");
    assert_eq!(messages.len(), 4);
    assert_eq!(broker.received("SIGNED", broker.key("ours")).unwrap(), 13);

    for (key, what) in [
        (broker.key("other"), "not signed with this key"),
        (None, "no key was given"),
    ] {
        let seen = broker.passed_over("SIGNED", key, 4);
        let text = seen.waiting.unwrap();
        assert!(text.contains(what), "{text}");
        assert_eq!(seen.number, 0);
    }

    // Each byte counts: of the head, of a record, of the signature.
    for (index, at) in [20, 40, 80, messages[2].len() - 1].into_iter().enumerate() {
        let mut altered = messages.clone();
        altered[2][at] ^= 1;
        let stream = format!("ALTERED{index}");
        broker.forge(&stream, &altered);
        // It is passed over, and then what it had is missing.
        let error = broker.received(&stream, broker.key("ours")).unwrap_err();
        assert!(matches!(error, Error::Missing { number: 8, .. }), "{error}");
    }
    // Reordered, or one left out.
    let mut swapped = messages.clone();
    swapped.swap(1, 2);
    broker.forge("SWAPPED", &swapped);
    let mut left_out = messages.clone();
    left_out.remove(1);
    broker.forge("LEFT_OUT", &left_out);
    for stream in ["SWAPPED", "LEFT_OUT"] {
        let error = broker.received(stream, broker.key("ours")).unwrap_err();
        assert!(matches!(error, Error::Missing { number: 5, .. }), "{error}");
    }
    // Twice is harmless.
    let mut twice = messages.clone();
    twice.extend_from_slice(&messages);
    twice.swap(1, 0);
    twice.remove(0);
    twice.insert(1, messages[1].clone());
    broker.forge("TWICE", &twice);
    assert_eq!(broker.received("TWICE", broker.key("ours")).unwrap(), 13);
    broker.forge("FOREIGN", &[b"good day".to_vec()]);
    let seen = broker.passed_over("FOREIGN", None, 1);
    let text = seen.foreign.last.unwrap();
    assert!(text.contains("message 1 is no part of a log"), "{text}");

    // A publisher without the key cannot continue the stream either.
    let error = publish(
        &mut Publisher::new(log.path(), options(&url, None), single()).unwrap(),
        13,
    );
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Unsigned { .. }), "{error}");
    let whole = tempfile::tempdir().unwrap();
    let sink = Sink::open(whole.path()).unwrap();
    receive(
        &mut Receiver::new(sink, options(&url, broker.key("ours"))),
        13,
    )
    .unwrap();
    assert_equal(whole.path(), log.path());
}
