//! A source is killed while a program writes, and a replica is promoted. Acknowledged data is
//! there, the log continues with the promoted tree, and the former source comes back as a replica.
#![allow(clippy::print_stdout, reason = "how the source and the test speak")]

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use replicate::apply::{self, Gate, Options, Replica};
use replicate::capture;
use replicate::log::Reader;
use replicate::patterns::Patterns;
use replicate::record::{Change, Entry};
use replicate::service::capture::{Recorder, Settings};
use replicate::service::promote::{self, Promotion};
use replicate::service::{Error, receive};
use replicate::ship::tcp::{Client, Limits};

use crate::applying::differ;
use crate::bed::file_system::{Bed, Format, within};
use crate::bed::trees::{What, differences};
use crate::restart::data_of;
use crate::shipping;

const TREE: &str = "PROMOTE_TREE";
const LOG: &str = "PROMOTE_LOG";
const LIMIT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);
/// This many bytes must not be copied again.
const LARGE: usize = 3_000_000;

fn settings(tree: &Path, log: &Path, fresh: bool) -> Settings {
    Settings {
        tree: tree.to_owned(),
        log: log.to_owned(),
        fresh,
        journal: false,
        allow: Vec::new(),
        check: None,
        patterns: Patterns::default(),
        ring_bytes: 8 << 20,
        pin: None,
        bounded: None,
        rate_limit: None,
        keep: None,
    }
}

/// Not a test: the program that the others start and kill.
#[test]
fn a_source() {
    let (Some(tree), Some(log)) = (env::var_os(TREE), env::var_os(LOG)) else {
        return;
    };
    let settings = settings(Path::new(&tree), Path::new(&log), false);
    let mut recorder = Recorder::begin(&settings).unwrap();
    let mut ready = false;
    loop {
        let captured = recorder.step(&mut |_| false).unwrap();
        if captured.ready && !ready {
            ready = true;
            println!("said ready");
        }
        recorder.wait(None).unwrap();
    }
}

/// A running source.
struct Running {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(tree: &Path, log: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "promote_capture::a_source", "--nocapture"])
            .env(TREE, tree)
            .env(LOG, log)
            .stdout(Stdio::piped());
        let mut process = sys::child::die_with_parent(&mut command).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut running = Self { process, lines };
        let mut line = String::new();
        while !line.contains("said ready") {
            line.clear();
            let read = running.lines.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the source has ended");
        }
        running
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn fill(tree: &Path) {
    fs::create_dir(tree.join("folder")).unwrap();
    fs::write(tree.join("folder/large"), vec![7; LARGE]).unwrap();
    fs::write(tree.join("folder/small"), "small").unwrap();
    fs::write(tree.join("count"), 0_u64.to_le_bytes()).unwrap();
}

/// Writes increasing numbers and syncs each, until it is told to end.
fn count(tree: &Path, ends: &AtomicBool) {
    let file = File::options()
        .write(true)
        .open(tree.join("count"))
        .unwrap();
    let mut number = count_of(tree);
    while !ends.load(Ordering::Relaxed) {
        number += 1;
        file.write_all_at(&number.to_le_bytes(), 0).unwrap();
        file.sync_data().unwrap();
    }
}

fn count_of(tree: &Path) -> u64 {
    let bytes = fs::read(tree.join("count")).unwrap();
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The number of the counter in each epoch of a log.
struct EpochTotals {
    reader: Reader,
    now: u64,
    /// As of the last epoch that was asked for.
    last: u64,
}

impl EpochTotals {
    fn to(&mut self, epoch: u64) -> u64 {
        while let Some(located) = self.reader.read().unwrap() {
            match located.record.entry {
                Entry::Change(Change::Data {
                    offset: 0, bytes, ..
                }) if bytes.len() == 8 => {
                    self.now = u64::from_le_bytes(bytes.try_into().unwrap());
                }
                Entry::Epoch { number } => {
                    self.last = self.now;
                    if number >= epoch {
                        break;
                    }
                }
                _ => {}
            }
        }
        self.last
    }
}

fn promote(log: &Path, replica: &Path) -> Promotion {
    let settings = promote::Settings {
        log: log.to_owned(),
        replica: replica.to_owned(),
        allow_delete: false,
        no_loss: false,
        gate: Gate::default(),
    };
    let planned = settings.plan().unwrap();
    let promoted = settings.run().unwrap();
    assert_eq!(
        (planned.term, planned.losses.epoch),
        (promoted.term, promoted.losses.epoch)
    );
    assert!(!promoted.already);
    assert!(settings.run().unwrap().already);
    promoted
}

fn refusal(tree: &Path, log: &Path, fresh: bool) -> String {
    let error = Recorder::begin(&settings(tree, log, fresh))
        .map(drop)
        .unwrap_err();
    let refused = matches!(error, Error::Capture(capture::Error::Promoted { .. }));
    assert!(refused, "{error}");
    error.to_string()
}

/// Applies all, and compares with the source.
fn check(log: &Path, replica: &Path, source: &Path, options: Options) -> apply::StepReport {
    let mut replica_of = Replica::open(log, replica, options).unwrap();
    let applied = replica_of.apply(None).unwrap().unwrap();
    let tree = replica.join("tree");
    let all = differ(log, applied.epoch, &tree);
    assert!(all.is_empty(), "{all:#?}");
    let mut all = differences(source, &tree);
    all.retain(|one| one.what != What::Holes);
    assert!(all.is_empty(), "{all:#?}");
    replica_of.end().unwrap();
    applied
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let since = Instant::now();
    while !reached() {
        assert!(since.elapsed() < LIMIT, "never: {what}");
        thread::sleep(STEP);
    }
}

/// Waits until the log has the current number of the tree.
fn caught_up(log: &Path, tree: &Path) {
    let mut counted = EpochTotals {
        reader: Reader::open(log).unwrap(),
        now: 0,
        last: 0,
    };
    let wanted = count_of(tree);
    until("the log has all", || counted.to(u64::MAX) >= wanted);
}

fn on_ext4(work: impl FnOnce(&Bed, PathBuf, PathBuf) + Send) {
    within(|bed| {
        let places = (
            bed.mount(Format::Ext4, "one"),
            bed.mount(Format::Ext4, "other"),
        );
        if let (Some(one), Some(other)) = places {
            work(bed, one, other);
        }
    });
}

#[test]
fn a_local_replica_is_promoted_without_losing_what_it_had() {
    on_ext4(|bed, tree, other| {
        let log = bed.scratch().join("log");
        let (replica, follower) = (other.join("replica"), other.join("follower"));
        fill(&tree);
        let source = Running::start(&tree, &log);
        check(&log, &follower, &tree, Options::default());
        let ends = AtomicBool::new(false);
        let mut acknowledged = 0;
        thread::scope(|scope| {
            let writes = scope.spawn(|| count(&tree, &ends));
            let mut applying = Replica::open(&log, &replica, Options::default()).unwrap();
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(300) || acknowledged == 0 {
                if applying.apply(None).unwrap().is_some() {
                    acknowledged = count_of(&replica.join("tree"));
                }
            }
            source.kill();
            ends.store(true, Ordering::Relaxed);
            writes.join().unwrap();
        });
        let promoted = promote(&log, &replica);
        assert_eq!(
            (promoted.term, promoted.losses.missing_epochs()),
            (2, Some(0))
        );
        let now = replica.join("tree");
        assert!(count_of(&now) >= acknowledged && acknowledged > 0);
        // The source comes back, and the replica's own `apply`.
        let before = data_of(&log);
        for fresh in [false, true] {
            let said = refusal(&tree, &log, fresh);
            assert!(said.contains("promoted to term 2"), "{said}");
        }
        let opened = Replica::open(&log, &replica, Options::default());
        assert!(matches!(opened.unwrap_err(), apply::Error::Promoted(_)));
        assert_eq!(data_of(&log), before);
        // The application continues with the promoted tree, and so does the log.
        let source = Running::start(&now, &log);
        fs::write(now.join("new"), "new").unwrap();
        fs::rename(now.join("folder/small"), now.join("renamed")).unwrap();
        fs::write(now.join("count"), 1_000_000_u64.to_le_bytes()).unwrap();
        caught_up(&log, &now);
        source.kill();
        // Nothing was copied that had not changed.
        assert!(
            data_of(&log).1 < before.1 + 1000,
            "{:?} {before:?}",
            data_of(&log)
        );
        let applied = check(&log, &follower, &now, Options::default());
        assert!(applied.bytes < 1000, "{applied:?}");
        // The source becomes a replica.
        let back = tree.parent().unwrap().join("back");
        fs::create_dir(&back).unwrap();
        fs::rename(&tree, back.join("tree")).unwrap();
        let resync = Options {
            resync: true,
            ..Options::default()
        };
        let applied = check(&log, &back, &now, resync);
        assert!(applied.bytes < 1000, "{applied:?}");
        let promoted = promote(&log, &back);
        assert_eq!(promoted.term, 3);
        refusal(&now, &log, false);
        let source = Running::start(&back.join("tree"), &log);
        source.kill();
        check(&log, &follower, &back.join("tree"), Options::default());
    });
}

#[test]
fn a_copy_over_tcp_is_promoted_without_losing_what_it_acknowledged() {
    on_ext4(|_, tree, other| {
        let keys = shipping::Bed::new();
        let (log, copy) = (keys.log(), keys.copy(0));
        let replica = other.join("replica");
        fill(&tree);
        let source = Running::start(&tree, &log);
        let server = keys.server(Limits::default());
        let ends = AtomicBool::new(false);
        let mut acknowledged = 0;
        let settings = received(&keys, server.address(), &copy);
        thread::scope(|scope| {
            let writes = scope.spawn(|| count(&tree, &ends));
            let mut receiving = settings.start().unwrap();
            let since = Instant::now();
            let mut epoch = 0;
            // The source reports the head of its log once a second.
            let upstream = || fs::read_to_string(copy.join("upstream"));
            let is_heard = || upstream().is_ok_and(|text| !text.contains("\"epoch\":null"));
            while since.elapsed() < Duration::from_millis(500) || epoch == 0 || !is_heard() {
                receiving.step(STEP).unwrap();
                let status = server.status();
                epoch = status.replicas.first().map_or(0, |replica| replica.epoch);
            }
            let mut counted = EpochTotals {
                reader: Reader::open(&copy).unwrap(),
                now: 0,
                last: 0,
            };
            acknowledged = counted.to(epoch);
            source.kill();
            ends.store(true, Ordering::Relaxed);
            writes.join().unwrap();
        });
        drop(server);
        check_copy(&copy, &replica);
        let promoted = promote(&copy, &replica);
        let losses = &promoted.losses;
        assert!(losses.upstream.is_some() && losses.missing_epochs().is_some());
        let now = replica.join("tree");
        assert!(count_of(&now) >= acknowledged && acknowledged > 0);
        let source = Running::start(&now, &copy);
        fs::write(now.join("count"), 2_000_000_u64.to_le_bytes()).unwrap();
        caught_up(&copy, &now);
        source.kill();
        // The earlier source's machine takes the differences.
        let server = keys.server_of(&copy, Limits::default());
        let (to, tls) = (
            peer(server.address()),
            keys.files("edge-1").client().unwrap(),
        );
        let client = Client::open(&log, to, tls, false, shipping::waits()).unwrap();
        let mut client = client.with_rollback(true);
        let last = shipping::read(&copy).last().unwrap().number;
        let mut progress = client.poll(STEP).unwrap().clone();
        until("the copy is that of the promoted source", || {
            progress = client.poll(STEP).unwrap().clone();
            progress.connected && progress.number == last
        });
        assert!(
            progress.bytes < 1000 && progress.replaced == 0,
            "{progress:?}"
        );
        drop((client, server));
        let back = tree.parent().unwrap().join("back");
        fs::create_dir(&back).unwrap();
        fs::rename(&tree, back.join("tree")).unwrap();
        let resync = Options {
            resync: true,
            ..Options::default()
        };
        let applied = check(&log, &back, &now, resync);
        assert!(applied.bytes < 1000, "{applied:?}");
        assert_eq!(promote(&log, &back).term, 3);
    });
}

fn peer(address: SocketAddr) -> replicate::ship::tcp::Peer {
    replicate::ship::tcp::Peer::parse(&address.to_string()).unwrap()
}

fn received(keys: &shipping::Bed, from: SocketAddr, log: &Path) -> receive::Settings {
    let files = keys.files("edge-1");
    receive::Settings {
        from: format!("tcp://{from}"),
        log: log.to_owned(),
        fresh: false,
        rollback: false,
        keep: None,
        tls: replicate::service::publish::Tls {
            cert: Some(files.certificate),
            key: Some(files.key),
            server_ca: Some(files.authority),
        },
        broker: replicate::service::publish::Broker::default(),
    }
}

fn check_copy(copy: &Path, replica: &Path) {
    let mut applying = Replica::open(copy, replica, Options::default()).unwrap();
    applying.apply(None).unwrap();
    applying.end().unwrap();
}
