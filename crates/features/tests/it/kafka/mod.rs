//! Rows in a Kafka topic: from a broker that is there, one that dies and comes back, and none at all.

mod broker;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use arrow_array::RecordBatch;
use broker::{Broker, Kafka, StoredMessage};
use features::sink::{Error, KafkaSink, Mode, Sink};

use crate::common::{Row, assert_same, capture, expected, free_port, write};

const PARTITIONS: usize = 3;
const TOPIC: &str = "flows";

/// A broker with the topic.
fn started(kafka: &Kafka) -> Broker {
    let broker = kafka.start();
    broker.create_topic(TOPIC, PARTITIONS);
    broker
}

fn sink(broker: &Broker, mode: Mode) -> KafkaSink {
    KafkaSink::connect(&format!("127.0.0.1:{}/{TOPIC}", broker.port()), mode).unwrap()
}

fn row(stored: &StoredMessage) -> Row {
    let number = |name: &str| stored.row[name].as_u64().unwrap();
    let id = number("flow_id");
    assert_eq!(stored.key, id.to_string());
    let counts = ["fwd_packets", "fwd_ip_bytes", "bwd_packets", "bwd_ip_bytes"];
    (id, counts.map(number))
}

/// The rows of a topic, each once, and how often the topic has one again.
fn rows(broker: &Broker) -> (Vec<Row>, usize) {
    let stored = broker.consume(TOPIC);
    let rows: HashMap<u64, Row> = stored.iter().map(row).map(|row| (row.0, row)).collect();
    let again = stored.len() - rows.len();
    (rows.into_values().collect(), again)
}

#[test]
fn a_topic_has_every_row_under_its_flow() {
    let Some(kafka) = Kafka::install() else {
        return;
    };
    let broker = started(&kafka);
    let capture = capture(500);
    let summary = write(&capture, "flow.v1", Box::new(sink(&broker, Mode::Whole)));
    assert_eq!(summary.lost_rows, 0, "{:?}", summary.output);
    let stored = broker.consume(TOPIC);
    let received: Vec<Row> = stored.iter().map(row).collect();
    assert_same("kafka", &received, &expected(&capture));
    // Kafka's own clients would have put each key where it is.
    let ours: HashMap<&str, usize> = stored
        .iter()
        .map(|s| (s.key.as_str(), s.partition))
        .collect();
    let keys: Vec<&str> = ours.keys().copied().take(60).collect();
    broker.create_topic("theirs", PARTITIONS);
    broker.produce("theirs", &keys);
    let theirs = broker.consume("theirs");
    assert_eq!(theirs.len(), keys.len());
    for theirs in theirs {
        assert_eq!(
            ours[theirs.key.as_str()],
            theirs.partition,
            "{}",
            theirs.key
        );
    }
}

/// Says when some batches have been written, and goes on at a word.
struct Pausing {
    sink: KafkaSink,
    left: usize,
    say: SyncSender<()>,
    go_on: Receiver<()>,
}

impl Sink for Pausing {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        if self.left == 0 {
            let _ = self.say.try_send(());
            let _ = self.go_on.recv();
        }
        self.left = self.left.wrapping_sub(1);
        self.sink.write(batch)
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.sink.finish()
    }

    fn lost(&self) -> u64 {
        self.sink.lost()
    }
}

#[test]
fn a_broker_that_dies_and_comes_back_has_every_row() {
    let Some(kafka) = Kafka::install() else {
        return;
    };
    let mut broker = started(&kafka);
    let capture = capture(1500);
    let (say, said) = sync_channel(1);
    let (word, go_on) = sync_channel(1);
    let sink = Pausing {
        sink: sink(&broker, Mode::Whole),
        left: 3,
        say,
        go_on,
    };
    let summary = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&capture, "flow.v1", Box::new(sink)));
        said.recv().unwrap();
        // The next rows are on their way, or not yet, when it dies.
        word.send(()).unwrap();
        broker.kill();
        drop(word);
        broker.restart();
        writer.join().unwrap()
    });
    assert_eq!(summary.lost_rows, 0, "{:?}", summary.output);
    let (stored, again) = rows(&broker);
    println!("{} rows, {again} of them again", stored.len());
    assert_same("kafka", &stored, &expected(&capture));
}

#[test]
fn a_live_run_counts_what_a_missing_broker_does_not_get() {
    let Some(kafka) = Kafka::install() else {
        return;
    };
    let mut broker = started(&kafka);
    let (say, said) = sync_channel(1);
    let (word, go_on) = sync_channel(1);
    let sink = Pausing {
        sink: sink(&broker, Mode::Live),
        left: 3,
        say,
        go_on,
    };
    let capture = capture(4000);
    let all = expected(&capture).len() as u64;
    let summary = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&capture, "flow.v1", Box::new(sink)));
        said.recv().unwrap();
        broker.kill();
        // The sink waits for nobody: most rows are lost, and the last ones wait for the broker.
        drop(word);
        broker.restart();
        writer.join().unwrap()
    });
    assert_eq!(summary.rows + summary.lost_rows, all);
    assert!(summary.lost_rows > 0 && summary.rows > 3000, "{summary:?}");
    let (stored, _) = rows(&broker);
    assert_eq!(stored.len() as u64, summary.rows, "{:?}", summary.output);
}

#[test]
fn a_topic_that_is_not_there_is_one_error() {
    let Some(kafka) = Kafka::install() else {
        return;
    };
    let broker = kafka.start();
    let address = format!("127.0.0.1:{}/others", broker.port());
    let error = KafkaSink::connect(&address, Mode::Whole).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("others: the broker has no such topic"),
        "{error}"
    );
}

#[test]
fn a_broker_that_is_not_there_is_one_error() {
    let port = free_port();
    for mode in [Mode::Whole, Mode::Live] {
        let error = KafkaSink::connect(&format!("127.0.0.1:{port}/flows"), mode).unwrap_err();
        let error = error.to_string();
        let expected = format!("127.0.0.1:{port} flows: Connection refused");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn what_is_no_broker_is_one_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Hangs up on everybody, as a server of something else does.
    thread::spawn(move || listener.incoming().for_each(drop));
    let error = KafkaSink::connect(&format!("127.0.0.1:{port}/flows"), Mode::Whole).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with(&format!("127.0.0.1:{port} flows: ")),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}
