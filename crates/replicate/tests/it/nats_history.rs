//! A stream with another history than a copy or the log leads to an error, at any position.

use std::path::Path;

use replicate::log;
use replicate::record::{Entry, Kind};
use replicate::service::publish::{Broker, Tls};
use replicate::service::receive::{Receiving, Settings};
use replicate::ship::nats::{Error, Receiver};
use test_support::nats_server::{self, Server, wait_until};

use crate::common::{data, epoch, link, new, start};
use crate::nats_peers::{
    self, STEP, assert_equal, last, options, publish, publisher, receive, receiver, single, write,
};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Four records for each file, without the start.
fn files(from: u64, count: u64) -> impl Iterator<Item = Entry> {
    (from..from + count).flat_map(|inode| {
        [
            new(inode, Kind::Regular),
            link(2, &format!("file {inode}"), inode),
            data(inode, 3, &[7; 100]),
            epoch(inode),
        ]
    })
}

/// 21 records that all histories share.
fn log_of_five() -> tempfile::TempDir {
    let log = folder();
    write(log.path(), [start()]);
    write(log.path(), files(10, 5));
    log
}

fn copy_of(log: &Path) -> tempfile::TempDir {
    let copy = folder();
    replace(copy.path(), log);
    copy
}

/// Replaces a log by a copy of another.
fn replace(log: &Path, by: &Path) {
    for entry in std::fs::read_dir(log).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for entry in std::fs::read_dir(by).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, log.join(path.file_name().unwrap())).unwrap();
    }
}

/// A log with other records from this one on, written at other times.
fn another(log: &Path, from: u64, more: u64) -> tempfile::TempDir {
    let other = copy_of(log);
    for inode in from..from + more {
        write(other.path(), files(inode, 1));
    }
    other
}

fn purge(url: &str) {
    let mut client = nats::Client::connect(&options(url, None).connect).unwrap();
    let api = nats::Api::new(None);
    let nothing = serde_json::json!({});
    api.request(&mut client, "STREAM.PURGE.APP", &nothing)
        .unwrap();
}

/// Folds a log up to an epoch.
fn fold(log: &Path, epoch: u64) {
    let mut writer = log::Writer::open(log, log::Options::default()).unwrap();
    writer.seal().unwrap();
    drop(writer);
    log::compact(log, epoch).unwrap();
}

/// Stores a message as the publisher would.
fn store(client: &mut nats::Client, headers: &[(&str, &str)], body: &[u8]) {
    let reply = client.inbox("stored");
    client.publish("lowroad.log.APP", &reply, headers, body);
    let answer = client.next(nats_server::TIMEOUT).unwrap().unwrap();
    nats::parse_response(&answer.body).unwrap();
}

fn publish_all(log: &Path, url: &str) {
    publish(&mut publisher(log, url, single()), last(log)).unwrap();
}

fn diverges(receiver: &mut Receiver) {
    let error = receive(receiver, u64::MAX);
    assert!(matches!(error, Err(Error::Diverged { .. })), "{error:?}");
}

#[test]
fn a_copy_that_is_ahead_of_another_history_is_told_so() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let before = log_of_five();
    let log = copy_of(before.path());
    write(log.path(), files(100, 3));
    let [away, connected] = [folder(), folder()];
    let mut there = receiver(connected.path(), &url);
    publish_all(log.path(), &url);
    receive(&mut there, 33).unwrap();
    receive(&mut receiver(away.path(), &url), 33).unwrap();
    // As if a power failure had lost the last twelve records, and eight others were written.
    let other = another(before.path(), 200, 2);
    purge(&url);
    publish_all(other.path(), &url);
    diverges(&mut there);
    diverges(&mut receiver(away.path(), &url));
    // The contents end with a record that comes in parts.
    let other = copy_of(before.path());
    write(other.path(), [epoch(199)]);
    write(other.path(), [data(10, 0, &vec![7; 2 << 20])]);
    purge(&url);
    publish_all(other.path(), &url);
    diverges(&mut receiver(away.path(), &url));
    assert_equal(away.path(), log.path());
}

#[test]
fn a_copy_that_is_ahead_of_the_same_history_waits_for_it() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let less = log_of_five();
    write(less.path(), files(100, 1));
    let log = copy_of(less.path());
    write(log.path(), files(101, 2));
    let [away, connected] = [folder(), folder()];
    let mut there = receiver(connected.path(), &url);
    publish_all(log.path(), &url);
    receive(&mut there, 33).unwrap();
    receive(&mut receiver(away.path(), &url), 33).unwrap();
    purge(&url);
    publish_all(less.path(), &url);
    let mut again = receiver(away.path(), &url);
    wait_until("it listens", || {
        let progress = again.step(STEP).unwrap();
        progress.server.is_some() && progress.waiting.is_none()
    });
    write(log.path(), files(103, 1));
    publish_all(log.path(), &url);
    for (receiver, copy) in [(&mut there, &connected), (&mut again, &away)] {
        receive(receiver, 37).unwrap();
        assert_equal(copy.path(), log.path());
    }
}

#[test]
fn numbers_of_what_was_folded_since_are_no_other_history() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let log = log_of_five();
    write(log.path(), (0..50).map(|_| data(10, 3, &[7; 100])));
    write(log.path(), [epoch(30)]);
    let [away, connected] = [folder(), folder()];
    let mut there = receiver(connected.path(), &url);
    publish_all(log.path(), &url);
    receive(&mut there, 72).unwrap();
    receive(&mut receiver(away.path(), &url), 72).unwrap();
    fold(log.path(), 30);
    assert!(nats_peers::records(log.path())[0].number > 30);
    purge(&url);
    publish_all(log.path(), &url);
    write(log.path(), files(100, 1));
    publish_all(log.path(), &url);
    for receiver in [&mut there, &mut receiver(away.path(), &url)] {
        receive(receiver, 76).unwrap();
    }
}

#[test]
fn a_copy_is_replaced_each_time_that_its_source_loses_power() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let (before, copy) = (log_of_five(), folder());
    let settings = Settings {
        from: url.clone(),
        log: copy.path().to_owned(),
        fresh: true,
        rollback: false,
        keep: None,
        tls: Tls::default(),
        broker: Broker::default(),
    };
    let mut receiving = settings.start().unwrap();
    let follow = |receiving: &mut Receiving, log: &Path| {
        wait_until("the copy is the log", || {
            receiving.step(STEP).unwrap();
            nats_peers::records(copy.path()) == nats_peers::records(log)
        });
    };
    for (from, count) in [(100, 3), (200, 2), (300, 1)] {
        let log = another(before.path(), from, count);
        // Otherwise fewer records would have the same times.
        write(log.path(), files(from + 50, from / 100));
        purge_if_there(&url);
        publish_all(log.path(), &url);
        follow(&mut receiving, log.path());
    }
}

fn purge_if_there(url: &str) {
    let mut client = nats::Client::connect(&options(url, None).connect).unwrap();
    let api = nats::Api::new(None);
    if api.stream(&mut client, "APP").unwrap().is_some() {
        purge(url);
    }
}

#[test]
fn a_publisher_compares_what_is_left_of_its_log_with_the_end_of_the_stream() {
    let Some(server) = Server::start("") else {
        return;
    };
    let before = log_of_five();
    let log = another(before.path(), 100, 2);
    let [shorter, folded, ended, exact] = [0, 2, 1, 0].map(|count| {
        let other = copy_of(before.path());
        write(other.path(), files(200, count));
        other
    });
    // They lack records of the stream, or their last record has another time.
    write(exact.path(), files(200, 1).take(3));
    write(exact.path(), [epoch(200)]);
    for other in [&folded, &ended, &exact] {
        fold(other.path(), 200);
    }
    for (stream, until, other, number) in [
        ("SHORTER", 29, &shorter, 22),
        ("FOLDED", 29, &folded, 29),
        ("ENDED", 29, &ended, 29),
        ("EXACT", 25, &exact, 25),
    ] {
        let url = server.url(stream);
        publish_all(before.path(), &url);
        let some = another(before.path(), 100, (until - 21) / 4);
        publish_all(some.path(), &url);
        let error = publish(&mut publisher(other.path(), &url, single()), 29);
        assert!(
            matches!(error, Err(Error::Diverged { number: found, .. }) if found == number),
            "{stream}: {error:?}"
        );
    }
    // The same history continues, whatever was folded.
    let (url, copy) = (server.url("SAME"), folder());
    publish_all(before.path(), &url);
    publish_all(log.path(), &url);
    receive(&mut receiver(copy.path(), &url), 29).unwrap();
    fold(log.path(), 100);
    write(log.path(), files(300, 1));
    publish(&mut publisher(log.path(), &url, single()), 33).unwrap();
    receive(&mut receiver(copy.path(), &url), 33).unwrap();
}

#[test]
fn a_publisher_that_reads_its_log_again_compares_it() {
    let Some(mut server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let (begun, log) = (folder(), folder());
    write(begun.path(), [start()]);
    replace(log.path(), begun.path());
    write(log.path(), files(10, 5));
    let mut source = publisher(log.path(), &url, single());
    publish(&mut source, 21).unwrap();
    write(log.path(), files(15, 1));
    publish(&mut source, 25).unwrap();
    server.kill();
    wait_until("the server is missed", || {
        source.step(STEP).unwrap().waiting.is_some()
    });
    // As if both were restored to an earlier state, and the log then continued differently.
    replace(log.path(), another(begun.path(), 10, 6).path());
    server.revive();
    let mut client = nats::Client::connect(&options(&url, None).connect).unwrap();
    let api = nats::Api::new(None);
    let config = api.stream(&mut client, "APP").unwrap().unwrap().config;
    let first = api.message(&mut client, "APP", 1).unwrap().unwrap();
    let nothing = serde_json::json!({});
    api.request(&mut client, "STREAM.DELETE.APP", &nothing)
        .unwrap();
    api.request(&mut client, "STREAM.CREATE.APP", &config)
        .unwrap();
    let run = first.header("Lowroad-Publisher").unwrap();
    store(&mut client, &[("Lowroad-Publisher", run)], &first.body);
    // The publisher is at record 25, and has not noticed anything.
    let error = publish(&mut source, 26);
    assert!(
        matches!(error, Err(Error::Diverged { number: 6, .. })),
        "{error:?}"
    );
}

#[test]
fn a_message_that_was_cut_shorter_and_comes_late_leaves_no_hole() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let (log, copy) = (log_of_five(), folder());
    let mut source = publisher(log.path(), &url, single());
    publish(&mut source, 21).unwrap();
    // Another publisher sends a next message that ends with record 25.
    let elsewhere = server.url("ELSEWHERE");
    publish_all(log.path(), &elsewhere);
    write(log.path(), files(100, 1));
    publish_all(log.path(), &elsewhere);
    write(log.path(), files(101, 1));
    let mut client = nats::Client::connect(&options(&url, None).connect).unwrap();
    let api = nats::Api::new(None);
    let first = api.message(&mut client, "APP", 1).unwrap().unwrap();
    let late = api.message(&mut client, "ELSEWHERE", 2).unwrap().unwrap();
    let [run, other] = [&first, &late].map(|sent| sent.header("Lowroad-Publisher").unwrap());
    let id = late.header("Nats-Msg-Id").unwrap().replace(other, run);
    let headers = [("Nats-Msg-Id", id.as_str()), ("Lowroad-Publisher", run)];
    store(&mut client, &headers, &late.body);
    publish(&mut source, 29).unwrap();
    let stream = api.stream(&mut client, "APP").unwrap().unwrap();
    assert_eq!(stream.last, 3, "what is behind record 25 came after it");
    receive(&mut receiver(copy.path(), &url), 29).unwrap();
    assert_equal(copy.path(), log.path());
}
