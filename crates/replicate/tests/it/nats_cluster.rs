//! A log in a stream that three servers keep, whose leader dies, hangs or is away; and at an edge behind a leaf node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use nats::{Api, Client};
use replicate::record::Entry;
use replicate::ship::nats::Settings;
use serde_json::{Value, json};
use sys::require::{Class, requested, skip};
use test_support::nats_server::{self, Cluster, Server, free_port, wait_until};

use crate::common::{data, epoch, start};
use crate::nats_peers::{
    self, OnDrop, Stop, Working, assert_equal, options, publish, publisher, receive, receiver,
    single, write,
};

/// The release that the documentation names.
const PINNED: &str = "github.com/nats-io/nats-server/v2@v2.14.9";
/// Records that are written around each death of a leader.
const EACH: u64 = 4000;

fn entries(from: u64, count: u64) -> impl Iterator<Item = Entry> {
    (from..from + count).map(|at| match at % 10 {
        0 => epoch(at),
        _ => data(at % 7, at, &[7; 500]),
    })
}

/// The stream's `cluster` object in the answer of `STREAM.INFO`, if a server answers.
fn replication(cluster: &Cluster, stream: &str) -> Option<Value> {
    let connect = options(&cluster.url(stream), None).connect;
    let mut client = Client::connect(&connect).ok()?;
    let what = format!("STREAM.INFO.{stream}");
    let mut info = Api::new(None)
        .request(&mut client, &what, &json!({}))
        .ok()?;
    Some(info["cluster"].take())
}

/// The server that leads the stream.
fn leader(cluster: &Cluster, stream: &str) -> usize {
    let mut found = None;
    wait_until("the stream has a leader", || {
        let replication = replication(cluster, stream).unwrap_or_default();
        let name = replication["leader"].as_str().unwrap_or_default();
        found = name.strip_prefix('n').and_then(|index| index.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

/// Waits until each server has the whole stream.
///
/// Three servers survive the loss of one. If the next one dies while the first still catches up, two are lost, and the
/// stream may stay without a leader.
fn wait_for_replicas(cluster: &Cluster, stream: &str) {
    wait_until("the replicas are current", || {
        let replication = replication(cluster, stream).unwrap_or_default();
        let replicas = replication["replicas"].as_array();
        replicas.is_some_and(|replicas| {
            replicas.len() == cluster.0.len() - 1
                && replicas.iter().all(|replica| replica["current"] == true)
        })
    });
}

fn a_leader_dies(program: &Path) {
    let mut cluster = Cluster::start(program, 3);
    let url = cluster.url("APP");
    let folder = || tempfile::tempdir().unwrap();
    let (log, copy, whole) = (folder(), folder(), folder());
    write(log.path(), [start()]);
    let (seen, stop) = (Mutex::default(), Stop::default());
    let received = Mutex::new(0);
    thread::scope(|scope| {
        let _stop = OnDrop(&stop);
        let source = publisher(log.path(), &url, Settings::default());
        let work = Working::publishing(scope, source, &seen, &stop);
        scope.spawn(|| {
            let mut edge = receiver(copy.path(), &url);
            while !stop.requested() {
                *received.lock().unwrap() = edge.step(nats_peers::STEP).unwrap().number;
            }
        });
        let published = || seen.lock().unwrap().number;
        for round in 0..3 {
            let before = 1 + round * EACH;
            // In small portions, so that the leader dies between messages of one window.
            for part in 0..EACH / 40 {
                write(log.path(), entries(before + part * 40, 40));
                if part == EACH / 80 {
                    wait_until("some are published", || published() > before + 100);
                    let leader = leader(&cluster, "APP");
                    cluster.0[leader].kill();
                }
            }
            wait_until("all are published", || published() == before + EACH);
            for server in &mut cluster.0 {
                server.revive_if_dead();
            }
            wait_for_replicas(&cluster, "APP");
        }
        wait_until("all are received", || {
            *received.lock().unwrap() == 1 + 3 * EACH
        });
        stop.stop();
        let published = work.done();
        assert_eq!(published.lost, 0);
        assert!(published.retries > 0);
    });
    assert_equal(copy.path(), log.path());
    let late = receive(&mut receiver(whole.path(), &url), 1 + 3 * EACH).unwrap();
    assert_eq!(late.duplicates, 0, "the stream has each record once");
    assert_equal(whole.path(), log.path());
}

#[test]
fn a_leader_that_dies_loses_and_doubles_nothing() {
    if let Some(program) = nats_server::program() {
        a_leader_dies(&program);
    }
}

#[test]
fn nor_does_one_of_the_pinned_release() {
    if !requested("builds and kills a current NATS server") {
        return;
    }
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let built = Command::new("go")
        .args(["install", PINNED])
        .env("GOBIN", &target)
        .status();
    match built {
        Err(_) => skip(Class::OptIn, "needs go, which builds nats-server"),
        Ok(status) => {
            assert!(status.success(), "{PINNED} was not built");
            a_leader_dies(&target.join("nats-server"));
        }
    }
}

#[test]
fn a_server_that_hangs_is_left_for_another() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let cluster = Cluster::start(&program, 3);
    let url = cluster.url("APP");
    let folder = || tempfile::tempdir().unwrap();
    let (log, copy) = (folder(), folder());
    write(log.path(), [start()]);
    write(log.path(), entries(1, 100));
    // While the servers elect a leader, each of them may be tried.
    let mut first = publisher(log.path(), &url, Settings::default());
    publish(&mut first, 101).unwrap();
    drop(first);
    let mut source = publisher(log.path(), &url, Settings::default());
    let mut edge = receiver(copy.path(), &url);
    let server = publish(&mut source, 101).unwrap().server;
    receive(&mut edge, 101).unwrap();
    let connected = |one: &&Server| Some(one.address()) == server;
    cluster.0.iter().find(connected).unwrap().hang();
    write(log.path(), entries(101, 100));
    let published = publish(&mut source, 201).unwrap();
    assert_ne!(published.server, server);
    receive(&mut edge, 201).unwrap();
    assert_equal(copy.path(), log.path());
}

#[test]
fn a_stream_whose_only_server_is_away_is_waited_for() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let mut cluster = Cluster::start(&program, 3);
    let url = cluster.url("APP");
    let folder = || tempfile::tempdir().unwrap();
    let (log, copy) = (folder(), folder());
    write(log.path(), [start()]);
    publish(&mut publisher(log.path(), &url, single()), 1).unwrap();
    let only = leader(&cluster, "APP");
    cluster.0[only].end();
    let mut source = publisher(log.path(), &url, single());
    let mut edge = receiver(copy.path(), &url);
    let offline = |waiting: Option<String>| waiting.is_some_and(|what| what.contains("offline"));
    wait_until("the publisher is told", || {
        offline(source.step(nats_peers::STEP).unwrap().waiting)
    });
    wait_until("the receiver is told", || {
        offline(edge.step(nats_peers::STEP).unwrap().waiting)
    });
    cluster.0[only].revive();
    write(log.path(), entries(1, 100));
    publish(&mut source, 101).unwrap();
    receive(&mut edge, 101).unwrap();
    assert_equal(copy.path(), log.path());
}

#[test]
fn an_edge_behind_a_leaf_node_has_its_own_stream() {
    let leaves = free_port();
    let hub = format!(
        "jetstream {{ store_dir: \"STORE\", domain: hub }}\nleafnodes {{ listen: 127.0.0.1:{leaves} }}\n"
    );
    let Some(hub) = Server::start(&hub) else {
        return;
    };
    let leaf = format!(
        "jetstream {{ store_dir: \"STORE\", domain: edge }}\n\
         leafnodes {{ remotes: [{{ url: \"nats://127.0.0.1:{leaves}\" }}] }}\n"
    );
    let Some(mut leaf) = Server::start(&leaf) else {
        return;
    };
    let folder = || tempfile::tempdir().unwrap();
    let (log, mirrored, direct) = (folder(), folder(), folder());
    write(log.path(), [start()]);
    write(log.path(), entries(1, 1000));
    let mut source = publisher(log.path(), &hub.url("APP"), single());
    publish(&mut source, 1001).unwrap();
    let url = leaf.url("APP");
    let mut client = Client::connect(&options(&url, None).connect).unwrap();
    let mirror = json!({
        "name": "APP",
        "storage": "file",
        "mirror": { "name": "APP", "external": { "api": "$JS.hub.API" } },
    });
    Api::new(Some("edge"))
        .request(&mut client, "STREAM.CREATE.APP", &mirror)
        .unwrap();
    receive(&mut receiver(mirrored.path(), &url), 1001).unwrap();
    // Without a stream of its own: the hub's, through the leaf.
    let mut through = options(&url, None);
    through.domain = Some("hub".to_owned());
    let sink = replicate::ship::Sink::open(direct.path()).unwrap();
    let mut through = replicate::ship::nats::Receiver::new(sink, through);
    receive(&mut through, 1001).unwrap();
    // The link breaks, and the mirror follows later.
    leaf.kill();
    write(log.path(), entries(1001, 1000));
    publish(&mut source, 2001).unwrap();
    leaf.revive();
    receive(&mut receiver(mirrored.path(), &url), 2001).unwrap();
    receive(&mut through, 2001).unwrap();
    assert_equal(mirrored.path(), log.path());
    assert_equal(direct.path(), log.path());
}
