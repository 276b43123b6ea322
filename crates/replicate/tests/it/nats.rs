//! A log in a stream of one NATS server arrives complete at every receiver, whatever is
//! interrupted.

use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use replicate::log;
use replicate::record::{Entry, Kind};
use replicate::ship::nats::{Error, Published, Publisher, Settings};
use test_support::nats_server::{self, Server, wait_until};

use crate::common::{data, epoch, link, new, start};
use crate::nats_peers::{
    self, OnDrop, Stop, Working, assert_equal, last, options, publish, publisher, receive,
    receiver, single, write,
};

const STEP: Duration = Duration::from_millis(50);

/// Four records for each file, without the start.
fn files(from: u64, count: u64) -> impl Iterator<Item = Entry> {
    (from..from + count).flat_map(|inode| {
        [
            new(inode, Kind::Regular),
            link(2, &format!("file {inode}"), inode),
            data(inode, 3, &vec![7; usize::try_from(inode % 1000).unwrap()]),
            epoch(inode),
        ]
    })
}

fn log_of(count: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), [start()]);
    write(folder.path(), files(10, count));
    folder
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn three_receivers_have_each_record_of_twenty_thousand() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let log = log_of(10);
    let copies = [folder(), folder(), folder()];
    let (seen, stop) = (Mutex::default(), Stop::default());
    thread::scope(|scope| {
        let _stop = OnDrop(&stop);
        let source = publisher(log.path(), &url, single());
        let work = Working::publishing(scope, source, &seen, &stop);
        let early = copies[..2].iter().map(|copy| {
            let url = url.clone();
            scope.spawn(move || receive(&mut receiver(copy.path(), &url), 20_001).unwrap())
        });
        let early: Vec<_> = early.collect();
        for part in 0..10 {
            write(log.path(), files(20 + part * 499, 499));
        }
        assert_eq!(last(log.path()), 20_001);
        for receiver in early {
            assert_eq!(receiver.join().unwrap().duplicates, 0);
        }
        let late = receive(&mut receiver(copies[2].path(), &url), 20_001).unwrap();
        assert_eq!(late.duplicates, 0);
        stop.stop();
        let published = work.done();
        assert!(published.messages < 5000, "small records go together");
        assert_eq!((published.lost, published.retries), (0, 0));
    });
    for copy in &copies {
        assert_equal(copy.path(), log.path());
    }
}

#[test]
fn large_records_come_in_parts_and_a_publisher_goes_on_within_one() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("LARGE");
    let log = log_of(3);
    let sizes = [16 << 20, 0, 600 << 10, (512 << 10) - 200, 3 << 20, 0];
    let sized = |size: usize| {
        data(
            11,
            0,
            &vec![size.to_le_bytes()[2]; size.saturating_sub(100)],
        )
    };
    write(log.path(), sizes.map(sized));
    let copy = folder();
    // Each publisher except the last stops when the stream is full.
    for room in [2 << 20, 5 << 20, 18 << 20] {
        let settings = Settings {
            max_bytes: Some(room),
            ..single()
        };
        if room > 2 << 20 {
            resize(&url, "LARGE", i64::try_from(room).unwrap());
        }
        let mut source = publisher(log.path(), &url, settings);
        wait_until("it is full", || is_full(&source.step(STEP).unwrap()));
        let mut edge = receiver(copy.path(), &url);
        wait_until("all is received", || {
            let progress = edge.step(STEP).unwrap();
            progress.messages > 0 && progress.pending == 0
        });
    }
    resize(&url, "LARGE", -1);
    publish(&mut publisher(log.path(), &url, single()), 19).unwrap();
    let received = receive(&mut receiver(copy.path(), &url), 19).unwrap();
    assert!(received.messages > 3, "a record was begun before");
    assert_equal(copy.path(), log.path());
    let whole = folder();
    let received = receive(&mut receiver(whole.path(), &url), 19).unwrap();
    assert_eq!(received.duplicates, 0);
    assert_equal(whole.path(), log.path());
}

/// Whether the publisher waits for space. It may also wait for a server that has not answered in
/// time.
fn is_full(published: &Published) -> bool {
    let waiting = published.waiting.as_ref();
    waiting.is_some_and(|what| what.contains("maximum bytes"))
}

fn resize(url: &str, stream: &str, max_bytes: i64) {
    let mut client = nats::Client::connect(&options(url, None).connect).unwrap();
    let api = nats::Api::new(None);
    let mut config = api.stream(&mut client, stream).unwrap().unwrap().config;
    config["max_bytes"] = serde_json::json!(max_bytes);
    let what = format!("STREAM.UPDATE.{stream}");
    api.request(&mut client, &what, &config).unwrap();
}

#[test]
fn a_second_publisher_is_refused_and_one_that_was_away_is_fenced() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("ONE");
    let log = log_of(5);
    let mut first = publisher(log.path(), &url, single());
    publish(&mut first, 21).unwrap();
    let (seen, stop) = (Mutex::default(), Stop::default());
    thread::scope(|scope| {
        let _stop = OnDrop(&stop);
        let work = Working::publishing(scope, first, &seen, &stop);
        // A publisher that does not answer within a second counts as gone. The next one then asks
        // again.
        let mut refused = None;
        wait_until("it is refused", || {
            refused = publish(&mut publisher(log.path(), &url, single()), 21).err();
            refused.is_some()
        });
        let error = refused.unwrap();
        assert!(matches!(error, Error::Taken { .. }), "{error}");
        assert!(error.to_string().contains("stop that one first"), "{error}");
        stop.stop();
        work.done();
    });
    // A stopped publisher does not answer, and does not know that it has a successor.
    let mut away = publisher(log.path(), &url, single());
    publish(&mut away, 21).unwrap();
    let mut second = publisher(log.path(), &url, single());
    write(log.path(), files(100, 1));
    publish(&mut second, 25).unwrap();
    write(log.path(), files(101, 1));
    let mut failed = None;
    wait_until("it is fenced", || {
        failed = away.step(STEP).err();
        failed.is_some()
    });
    assert!(matches!(failed, Some(Error::Fenced { .. })), "{failed:?}");
    publish(&mut second, 29).unwrap();
    let copy = folder();
    let received = receive(&mut receiver(copy.path(), &url), 29).unwrap();
    assert_eq!(received.duplicates, 0);
    assert_equal(copy.path(), log.path());
}

#[test]
fn a_stream_that_can_lose_messages_or_has_something_else_is_refused() {
    let Some(server) = Server::start("") else {
        return;
    };
    let log = log_of(5);
    let mut client = nats::Client::connect(&options(&server.url("X"), None).connect).unwrap();
    let api = nats::Api::new(None);
    let mut create = |name: &str, more: serde_json::Value| {
        let mut config = serde_json::json!({
            "name": name, "subjects": [format!("other.{name}")], "storage": "file",
        });
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        api.request(&mut client, &format!("STREAM.CREATE.{name}"), &config)
            .unwrap();
    };
    create(
        "OLD",
        serde_json::json!({ "max_bytes": 1 << 20, "discard": "old" }),
    );
    create("RAM", serde_json::json!({ "storage": "memory" }));
    create("WILD", serde_json::json!({ "subjects": ["wild.>"] }));
    create(
        "GOOD",
        serde_json::json!({ "max_bytes": 1 << 20, "discard": "new" }),
    );
    for (stream, what) in [
        ("OLD", "discard to new"),
        ("RAM", "storage to file"),
        ("WILD", "one subject"),
    ] {
        let error = publish(
            &mut publisher(log.path(), &server.url(stream), single()),
            21,
        );
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Settings { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let allowed = Settings {
        allow_loss: true,
        ..single()
    };
    publish(&mut publisher(log.path(), &server.url("OLD"), allowed), 21).unwrap();
    publish(
        &mut publisher(log.path(), &server.url("GOOD"), single()),
        21,
    )
    .unwrap();
    let other = log_of(6);
    let error = publish(
        &mut publisher(other.path(), &server.url("GOOD"), single()),
        25,
    );
    assert!(matches!(error, Err(Error::OtherLog { .. })), "{error:?}");
    let copy = folder();
    write(copy.path(), [start()]);
    let error = receive(&mut receiver(copy.path(), &server.url("GOOD")), 21);
    assert!(matches!(error, Err(Error::OtherLog { .. })), "{error:?}");
    // Three replicas need three servers.
    let error = publish(
        &mut publisher(log.path(), &server.url("NEW"), Settings::default()),
        21,
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("with 3 replicas"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_waited_for_and_one_that_dies_loses_nothing() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let mut server = Server::prepared(program, "");
    let url = server.url("APP");
    let (log, copy) = (log_of(10), folder());
    let mut source = publisher(log.path(), &url, single());
    let mut edge = receiver(copy.path(), &url);
    let waiting = source.step(STEP).unwrap().waiting.unwrap();
    assert!(waiting.contains("127.0.0.1"), "{waiting}");
    assert!(edge.step(STEP).unwrap().waiting.is_some());
    server.revive();
    publish(&mut source, 41).unwrap();
    receive(&mut edge, 41).unwrap();
    let (seen, stop) = (Mutex::default(), Stop::default());
    let receiving = Mutex::default();
    thread::scope(|scope| {
        let _stop = OnDrop(&stop);
        let work = Working::publishing(scope, source, &seen, &stop);
        scope.spawn(|| {
            while !stop.requested() {
                *receiving.lock().unwrap() = edge.step(STEP).unwrap();
            }
        });
        for round in 0..5 {
            write(log.path(), files(20 + round * 1000, 1000));
            let some = 41 + round * 4000 + 1000;
            wait_until("some are published", || seen.lock().unwrap().number > some);
            server.kill();
            server.revive();
        }
        let received = || -> u64 { receiving.lock().unwrap().number };
        wait_until("all are received", || received() == 20_041);
        stop.stop();
        assert!(work.done().retries > 0);
    });
    assert_equal(copy.path(), log.path());
    let whole = folder();
    let received = receive(&mut receiver(whole.path(), &url), 20_041).unwrap();
    assert_eq!(received.duplicates, 0);
    assert_equal(whole.path(), log.path());
}

#[test]
fn a_full_stream_is_waited_for() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("SMALL");
    let log = log_of(2000);
    let settings = Settings {
        max_bytes: Some(600 << 10),
        ..single()
    };
    let mut source = publisher(log.path(), &url, settings);
    wait_until("it is full", || is_full(&source.step(STEP).unwrap()));
    resize(&url, "SMALL", -1);
    publish(&mut source, 8001).unwrap();
    let copy = folder();
    let received = receive(&mut receiver(copy.path(), &url), 8001).unwrap();
    assert_eq!(received.duplicates, 0);
    assert_equal(copy.path(), log.path());
}

fn purge(url: &str, stream: &str, request: &serde_json::Value) {
    let mut client = nats::Client::connect(&options(url, None).connect).unwrap();
    let api = nats::Api::new(None);
    let what = format!("STREAM.PURGE.{stream}");
    api.request(&mut client, &what, request).unwrap();
}

#[test]
fn what_was_purged_is_published_again_or_missed() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let log = log_of(5);
    let mut source = publisher(log.path(), &url, single());
    publish(&mut source, 21).unwrap();
    let copy = folder();
    receive(&mut receiver(copy.path(), &url), 21).unwrap();
    for round in 0..3 {
        write(log.path(), files(100 + round, 1));
        publish(&mut source, 25 + round * 4).unwrap();
    }
    // The first two of four messages are purged.
    purge(&url, "APP", &serde_json::json!({ "seq": 3 }));
    for (copy, due) in [(&folder(), 1), (&copy, 22)] {
        let error = receive(&mut receiver(copy.path(), &url), 33);
        assert!(
            matches!(error, Err(Error::Purged { number, .. }) if number == due),
            "{error:?}"
        );
    }
    purge(&url, "APP", &serde_json::json!({}));
    drop(source);
    publish(&mut publisher(log.path(), &url, single()), 33).unwrap();
    receive(&mut receiver(copy.path(), &url), 33).unwrap();
    assert_equal(copy.path(), log.path());
}

#[test]
fn a_compacted_log_is_shipped_from_its_beginning() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let log = folder();
    let mut writer = log::Writer::open(log.path(), log::Options::default()).unwrap();
    writer.append(1, start()).unwrap();
    let written = (0..58).map(|_| data(10, 3, &[7; 100]));
    for entry in files(10, 1).take(2).chain(written) {
        writer.append(2, entry).unwrap();
    }
    writer.append(3, epoch(1)).unwrap();
    writer.seal().unwrap();
    log::compact(log.path(), 1).unwrap();
    for entry in files(20, 5) {
        writer.append(4, entry).unwrap();
    }
    drop(writer);
    let first = nats_peers::records(log.path())[0].number;
    assert!(first > 1);
    let mut source = publisher(log.path(), &url, single());
    publish(&mut source, 82).unwrap();
    let copy = folder();
    receive(&mut receiver(copy.path(), &url), 82).unwrap();
    assert_equal(copy.path(), log.path());
    write(log.path(), files(30, 5));
    publish(&mut source, 102).unwrap();
    receive(&mut receiver(copy.path(), &url), 102).unwrap();
    assert_equal(copy.path(), log.path());
}

fn copy_of(log: &Path) -> tempfile::TempDir {
    let copy = folder();
    for entry in std::fs::read_dir(log).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

#[test]
fn a_server_that_takes_small_messages_gets_no_others() {
    let Some(server) = Server::start("max_payload: 65536") else {
        return;
    };
    let url = server.url(&"A".repeat(200));
    // A record in parts, and many that fill messages.
    let log = log_of(2000);
    write(log.path(), [data(10, 0, &vec![7; 100_000]), epoch(3000)]);
    publish(&mut publisher(log.path(), &url, single()), 8003).unwrap();
    let copy = folder();
    receive(&mut receiver(copy.path(), &url), 8003).unwrap();
    assert_equal(copy.path(), log.path());
    let Some(server) = Server::start("max_payload: 4096") else {
        return;
    };
    let url = server.url("APP");
    let error = publish(&mut publisher(log.path(), &url, single()), 8003).unwrap_err();
    assert!(error.to_string().contains("max_payload"), "{error}");
}

#[test]
fn another_history_is_noticed_at_both_ends() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let log = log_of(5);
    let before = copy_of(log.path());
    write(log.path(), files(100, 1));
    publish(&mut publisher(log.path(), &url, single()), 25).unwrap();
    // As if a power failure had lost the last records, and others were written.
    write(before.path(), files(200, 2));
    let error = publish(&mut publisher(before.path(), &url, single()), 29);
    assert!(
        matches!(error, Err(Error::Diverged { number: 22, .. })),
        "{error:?}"
    );
    // Both detect it in a record that comes in parts, too, whose last part is the same.
    let large = || data(10, 0, &vec![7; 700 << 10]);
    let log = log_of(5);
    let other = copy_of(log.path());
    write(log.path(), [epoch(100), large()]);
    write(other.path(), [epoch(100)]);
    write(other.path(), [large(), epoch(101)]);
    let (url, copy) = (server.url("PARTS"), folder());
    publish(&mut publisher(log.path(), &url, single()), 23).unwrap();
    receive(&mut receiver(copy.path(), &url), 23).unwrap();
    let error = publish(&mut publisher(other.path(), &url, single()), 24);
    assert!(
        matches!(error, Err(Error::Diverged { number: 23, .. })),
        "{error:?}"
    );
    purge(&url, "PARTS", &serde_json::json!({}));
    publish(&mut publisher(other.path(), &url, single()), 24).unwrap();
    let error = receive(&mut receiver(copy.path(), &url), 24);
    assert!(
        matches!(error, Err(Error::Diverged { number: 23, .. })),
        "{error:?}"
    );
    let error = Publisher::new(Path::new("/nowhere"), options(&url, None), single());
    assert!(error.is_err());
}
