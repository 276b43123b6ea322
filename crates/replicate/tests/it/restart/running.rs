//! Starts and kills captures of a tree.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use replicate::capture::{Capture, INTERVAL, LogState, Options, Pin, Progress};
use replicate::log::{self, Reader, Writer};
use replicate::patterns::Patterns;
use replicate::record::{Change, Entry};
use replicate::restore::{self, restore};
use replicate::verify::{self, Scope};

use crate::bed::trees::{What, differences_in};
use crate::follow::Naive;

/// Steps to a barrier.
pub(crate) const BARRIER: u32 = 25;
/// Longer than a shared machine takes.
const LIMIT: Duration = Duration::from_secs(60);
const AS_ROOT: restore::Options = restore::Options { privileged: true };
/// What makes this program a capture.
const TREE: &str = "RESTART_TREE";
const LOG: &str = "RESTART_LOG";
/// Where it keeps a journal, if it does.
const PIN: &str = "RESTART_PIN";
/// What it includes and excludes, a line each.
const INCLUDE: &str = "RESTART_INCLUDE";
const EXCLUDE: &str = "RESTART_EXCLUDE";

/// Not a test: the program that the others start and kill.
#[test]
fn a_capture() {
    let (Some(tree), Some(log)) = (env::var_os(TREE), env::var_os(LOG)) else {
        return;
    };
    let mut writer = Writer::open(Path::new(&log), log::Options::default()).unwrap();
    let known = LogState::read(Path::new(&log)).unwrap();
    let pin = env::var_os(PIN).map(|folder| Pin {
        folder: folder.into(),
        log: log.into(),
        id: writer.id(),
    });
    let lines = |of: &str| -> Vec<String> {
        let text = env::var(of).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let options = Options {
        pin,
        patterns: Patterns::new(lines(INCLUDE), lines(EXCLUDE)),
        ..Options::default()
    };
    let mut capture = Capture::resume(Path::new(&tree), options, known).unwrap();
    let before = writer.epoch();
    let orders = orders();
    let mut ready = false;
    loop {
        let mut take = |entry| {
            writer.append(0, entry).unwrap();
        };
        let progress = capture.poll(&mut take).unwrap();
        if !ready && progress.epoch > before {
            ready = true;
            say("ready", &progress);
        }
        match orders.recv_timeout(INTERVAL) {
            Ok(()) => {
                assert!(capture.catch_up(LIMIT, &mut take).unwrap(), "no epoch");
                say("caught-up", &capture.progress());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        // Each epoch was on the disk before it had returned.
        capture.recorded(writer.epoch()).unwrap();
    }
}

fn say(what: &str, progress: &Progress) {
    let rescan = progress.rescan.unwrap_or_default();
    println!(
        "said {what} files={} new={} gone={} bytes={} differed={} journal={}",
        rescan.files,
        rescan.new,
        rescan.gone,
        rescan.bytes,
        rescan.differed,
        u8::from(rescan.journal)
    );
}

/// A line of the input is one.
fn orders() -> Receiver<()> {
    let (send, orders) = mpsc::channel();
    thread::spawn(move || {
        for _line in std::io::stdin().lines() {
            if send.send(()).is_err() {
                return;
            }
        }
    });
    orders
}

/// A capture that runs.
pub(crate) struct Running {
    process: Child,
    lines: BufReader<ChildStdout>,
}

pub(crate) type StatusFields = BTreeMap<String, u64>;

impl Running {
    pub(crate) fn start(place: &Place) -> Self {
        let patterns = place.turn();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "restart::running::a_capture", "--nocapture"])
            .env(TREE, &place.tree)
            .env(LOG, &place.log)
            .envs(place.pin.as_ref().map(|pin| (PIN, pin)))
            .env(INCLUDE, patterns.include.join("\n"))
            .env(EXCLUDE, patterns.exclude.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = sys::child::die_with_parent(&mut command).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Waits for this message, and returns its fields.
    pub(crate) fn wait(&mut self, what: &str) -> StatusFields {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it has ended");
            // The harness writes the test's name before the first of them.
            let Some((_, said)) = line.split_once("said ") else {
                continue;
            };
            let mut words = said.split_whitespace();
            if words.next() == Some(what) {
                let pairs = words.map(|word| word.split_once('=').unwrap());
                return pairs
                    .map(|(key, value)| (key.to_owned(), value.parse().unwrap()))
                    .collect();
            }
        }
    }

    pub(crate) fn catch_up(&mut self) -> StatusFields {
        let orders = self.process.stdin.as_mut().unwrap();
        orders.write_all(b"catch up\n").unwrap();
        self.wait("caught-up")
    }

    pub(crate) fn kill(mut self) {
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

pub(crate) struct Place {
    pub(crate) tree: PathBuf,
    pub(crate) log: PathBuf,
    copy: PathBuf,
    /// Where its captures keep a journal, if they do, and how many times a journal was used.
    pub(crate) pin: Option<PathBuf>,
    pub(crate) by_journal: Cell<u32>,
    /// What its captures have of the tree: two have the first, the next two the second, and so on.
    pub(crate) turns: Vec<Patterns>,
    started: Cell<usize>,
    patterns: RefCell<Patterns>,
}

impl Place {
    pub(crate) fn new(disk: &Path, scratch: &Path, seed: u64) -> Self {
        let place = Self {
            tree: disk.join(format!("seed {seed}")),
            log: scratch.join(format!("log {seed}")),
            copy: disk.join(format!("copy {seed}")),
            pin: None,
            by_journal: Cell::new(0),
            turns: Vec::new(),
            started: Cell::new(0),
            patterns: RefCell::default(),
        };
        fs::create_dir(&place.tree).unwrap();
        place
    }

    /// What the capture that is started has of the tree.
    fn turn(&self) -> Patterns {
        let started = self.started.replace(self.started.get() + 1);
        if let Some(turn) = (started / 2).checked_rem(self.turns.len()) {
            self.patterns.replace(self.turns[turn].clone());
        }
        self.patterns.borrow().clone()
    }

    pub(crate) fn clean(&self) {
        // An unused journal records every change of the file system for as long as it is pinned.
        self.unpin();
        for folder in [&self.tree, &self.log, &self.copy] {
            let _ = fs::remove_dir_all(folder);
        }
    }

    /// Removes the journal. Returns whether there was one.
    pub(crate) fn unpin(&self) -> bool {
        let pin = self.pin.clone().map(|folder| Pin {
            folder,
            log: self.log.clone(),
            id: [0; 16],
        });
        pin.is_some_and(|pin| pin.remove().unwrap())
    }

    /// The log's last epoch is the tree that is there.
    pub(crate) fn check(&self, said: &[String]) {
        restore(&self.log, None, &self.copy, AS_ROOT).unwrap();
        let naive = Naive::of(&self.patterns.borrow());
        let belongs = |path: &Path, directory| naive.admits(path, directory);
        let mut differ = differences_in(&self.tree, &self.copy, &belongs);
        differ.retain(|one| one.what != What::Holes);
        let last = said.len().saturating_sub(BARRIER as usize);
        assert!(
            differ.is_empty(),
            "{differ:#?}\n{}",
            said[last..].join("\n")
        );
        let scope = Scope {
            owners: true,
            privileged: true,
        };
        let on = &mut |_: &verify::Progress| ControlFlow::Continue(());
        let verdict = verify::verify(&self.log, None, &self.tree, scope, on).unwrap();
        assert!(verdict.equal(), "{verdict:#?}");
        fs::remove_dir_all(&self.copy).unwrap();
    }
}

/// The number of bytes in data records, and the number of such records.
pub(crate) fn data_of(log: &Path) -> (u64, u64) {
    let mut reader = Reader::open(log).unwrap();
    let (mut records, mut bytes) = (0, 0);
    while let Some(located) = reader.read().unwrap() {
        if let Entry::Change(Change::Data { bytes: said, .. }) = located.record.entry {
            records += 1;
            bytes += said.len() as u64;
        }
    }
    (records, bytes)
}

pub(crate) fn starts(log: &Path) -> usize {
    let mut reader = Reader::open(log).unwrap();
    let mut starts = 0;
    while let Some(located) = reader.read().unwrap() {
        starts += usize::from(matches!(located.record.entry, Entry::Start { .. }));
    }
    starts
}

pub(crate) fn shell(folder: &Path, script: &str) {
    let status = Command::new("bash")
        .args(["-euc", script])
        .current_dir(folder)
        .status();
    assert!(status.unwrap().success());
}
