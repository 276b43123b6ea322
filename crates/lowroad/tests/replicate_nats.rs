//! The real binary ships a log over a NATS server, and the publisher is killed in the middle.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../replicate/tests/servers/mod.rs"]
mod servers;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use replicate::log::{Durability, Error, Options, Reader, Writer};
use replicate::record::{Change, Entry, File, Origin, Record};
use serde_json::Value;
use servers::{Server, wait_until};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");

/// A program, which is killed when the test ends.
struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Program {
    fn start(arguments: &[&str], folder: &Path) -> Self {
        let mut child = Command::new(LOWROAD)
            .args(["replicate", "--json"])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// The next line that has this member, and what it is.
    fn says(&mut self, member: &str) -> Value {
        loop {
            let mut line = String::new();
            let count = self.said.read_line(&mut line).unwrap();
            assert_ne!(count, 0, "it ends without {member}");
            let value: Value = serde_json::from_str(&line).unwrap();
            if let Some(found) = value.get(member) {
                return found.clone();
            }
        }
    }

    fn end(mut self) -> Value {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let ended = self.says("ended");
        assert!(self.child.wait().unwrap().success());
        ended
    }

    /// Its exit code, and what it says on standard error.
    fn refused(arguments: &[&str], folder: &Path) -> (Option<i32>, String) {
        let mut command = Command::new(LOWROAD);
        command.arg("replicate").args(arguments).current_dir(folder);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ROOT: File = File {
    inode: 2,
    generation: 7,
};

/// Appends records up to this number, an epoch last.
fn write(folder: &Path, until: u64) {
    let options = Options {
        durability: Durability::OnRequest,
        ..Options::default()
    };
    let mut writer = open(folder, options);
    while writer.number() < until {
        let number = writer.number() + 1;
        let entry = match number {
            1 => Entry::Start { root: ROOT },
            number if number % 10 == 0 => Entry::Epoch { number },
            number => Entry::Change(Change::Data {
                file: ROOT,
                offset: number,
                bytes: vec![7; 2000],
                origin: Origin::Exact,
            }),
        };
        writer.append(number, entry).unwrap();
    }
    writer.sync().unwrap();
}

/// A program that another test starts at this moment has the lock as well, until it runs.
fn open(folder: &Path, options: Options) -> Writer {
    let mut opened = None;
    wait_until("the log is free", || {
        opened = match Writer::open(folder, options) {
            Err(Error::Busy(_)) => None,
            opened => Some(opened.unwrap()),
        };
        opened.is_some()
    });
    opened.unwrap()
}

fn records(folder: &Path) -> Vec<Record> {
    let Ok(mut reader) = Reader::open(folder) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    while let Some(located) = reader.read().unwrap() {
        all.push(located.record);
    }
    all
}

#[test]
fn a_publisher_that_is_killed_goes_on_where_the_stream_ends() {
    let Some(server) = Server::start("") else {
        return;
    };
    let url = server.url("APP");
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (log, copy) = (here.join("log"), here.join("copy"));
    write(&log, 100);
    let publish = ["publish", "log", "--to", &url, "--replicas", "1"];
    let mut edge = Program::start(&["receive", &url, "--to", "copy"], here);
    let mut last = 0;
    for round in 1..=5 {
        // Killed while it publishes: many megabytes of them are waiting.
        write(&log, 100 + round * 2000);
        let mut publisher = Program::start(&publish, here);
        wait_until("something more is there", || {
            let count = records(&copy).len();
            count > last
        });
        last = records(&copy).len();
        publisher.child.kill().unwrap();
        publisher.child.wait().unwrap();
    }
    let mut publisher = Program::start(&publish, here);
    assert_eq!(publisher.says("ready")["record"], 10_100);
    let (code, said) = Program::refused(&publish, here);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stop that one first"), "{said}");
    edge.says("ready");
    wait_until("all is there", || records(&copy).len() == 10_100);
    assert_eq!(edge.end()["number"], 10_100);
    let late = Program::start(&["receive", &url, "--to", "late"], here);
    wait_until("all is there", || {
        records(&here.join("late")).len() == 10_100
    });
    assert_eq!(late.end()["repeated"], 0);
    assert_eq!(publisher.end()["in_flight"], 0);
    let source = records(&log);
    assert!(records(&copy) == source);
    assert!(records(&here.join("late")) == source);

    // One of another log cannot use the stream.
    write(&here.join("other"), 10);
    let other = ["publish", "other", "--to", &url, "--replicas", "1"];
    let (code, said) = Program::refused(&other, here);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("has another log"), "{said}");
    // Nor can a copy of another one go on with it, unless it is told to begin afresh.
    let (code, said) = Program::refused(&["receive", &url, "--to", "other"], here);
    assert_eq!(code, Some(2), "{said}");
    let fresh = Program::start(&["receive", &url, "--to", "other", "--fresh"], here);
    wait_until("all is there", || {
        let again = records(&here.join("other"));
        again.len() == 10_100
    });
    assert_eq!(fresh.end()["number"], 10_100);
    assert!(records(&here.join("other")) == source);
}

#[test]
fn what_cannot_be_an_address_is_said() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("log"), 10);
    for to in [
        "nats://127.0.0.1:4222",
        "http://127.0.0.1/S",
        "nats://h/a.b",
    ] {
        let (code, said) = Program::refused(&["publish", "log", "--to", to], folder.path());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("nats://HOST:PORT/NAME"), "{said}");
    }
    let missing = ["publish", "nowhere", "--to", "nats://127.0.0.1:1/S"];
    let (code, said) = Program::refused(&missing, folder.path());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nowhere"), "{said}");
}
