//! A stream that was purged and has another history than a copy: the copy is told so, however far each of them is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod servers;
#[path = "servers/ship.rs"]
mod ship;

use std::path::Path;

use common::{data, epoch, link, new, start};
use replicate::log;
use replicate::record::{Entry, Kind};
use replicate::service::publish::{Broker, Tls};
use replicate::service::receive::{Receiving, Settings};
use replicate::ship::nats::{Error, Receiver};
use servers::{Server, wait_until};
use ship::{
    STEP, assert_equal, last, options, publish, publisher, receive, receiver, single, write,
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

/// 21 records that all histories have.
fn log_of_five() -> tempfile::TempDir {
    let log = folder();
    write(log.path(), [start()]);
    write(log.path(), files(10, 5));
    log
}

fn copy_of(log: &Path) -> tempfile::TempDir {
    let copy = folder();
    for entry in std::fs::read_dir(log).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// With other records from this one on, written at other times.
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
    api.ask(&mut client, "STREAM.PURGE.APP", &nothing).unwrap();
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
    // As if a loss of power had taken the last twelve records, and eight others came.
    let other = another(before.path(), 200, 2);
    purge(&url);
    publish_all(other.path(), &url);
    diverges(&mut there);
    diverges(&mut receiver(away.path(), &url));
    // What it has ends with a record that comes in parts.
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
    let mut writer = log::Writer::open(log.path(), log::Options::default()).unwrap();
    writer.seal().unwrap();
    drop(writer);
    log::compact(log.path(), 30).unwrap();
    assert!(ship::records(log.path())[0].number > 30);
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
        keep: None,
        tls: Tls::default(),
        broker: Broker::default(),
    };
    let mut receiving = settings.start().unwrap();
    let follow = |receiving: &mut Receiving, log: &Path| {
        wait_until("the copy is the log", || {
            receiving.step(STEP).unwrap();
            ship::records(copy.path()) == ship::records(log)
        });
    };
    for (from, count) in [(100, 3), (200, 2), (300, 1)] {
        let log = another(before.path(), from, count);
        // Otherwise the times of fewer records would be the same.
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
