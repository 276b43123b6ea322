//! `lowroad features live` as people run it: how it ends, what it says, and what Prometheus is told.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod serving;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netdev::Netlink;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;
use packet::build;
use serde_json::Value;
use serving::{Home, errors, lowroad};
use tempfile::TempDir;

const TOKEN: &str = "correct-horse-battery-staple";
const ADDRESS: &str = "127.0.0.1:8641";
const FRAMES: u64 = 300;
const FLOWS: u64 = 10;

/// A capture on the device `near`, killed when dropped.
struct Capture {
    child: Option<Child>,
    folder: TempDir,
    home: Home,
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

impl Capture {
    fn start(name: &str, more: &[&str]) -> Self {
        let home = Home::new(name);
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, format!("{TOKEN}\n")).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = live(&["near", "--schema", "nfstream.v1", "--json"]);
        command
            .args(["--metrics", ADDRESS, "--metrics-token"])
            .arg(token)
            .arg("-o")
            .arg(folder.path().join("flows.csv"))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = home.run(|| command.spawn().unwrap());
        Self {
            child: Some(child),
            folder,
            home,
        }
    }

    fn rows(&self) -> PathBuf {
        self.folder.path().join("flows.csv")
    }

    /// Sends frames until the capture tells of them: it may not have begun yet.
    fn feed(&mut self) -> BTreeMap<String, u64> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            self.home.run(send_frames);
            thread::sleep(Duration::from_millis(300));
            let told = self.scrape();
            if told.get("lowroad_features_seen_packets_total") >= Some(&FRAMES) {
                return told;
            }
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "{told:?}");
        }
    }

    /// What Prometheus would be told now; nothing before it listens.
    fn scrape(&self) -> BTreeMap<String, u64> {
        let answer = self.home.run(|| {
            let mut stream = TcpStream::connect(ADDRESS).ok()?;
            let head = format!("GET /metrics HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close");
            write!(stream, "{head}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            Some(answer)
        });
        let samples = answer.unwrap_or_default();
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        samples.lines().filter_map(sample).collect()
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().unwrap().id();
        kill(Pid::from_raw(id.cast_signed()), signal).unwrap();
    }

    /// What it has said at its end.
    fn end(&mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

fn live(arguments: &[&str]) -> Command {
    let mut command = lowroad();
    command.args(["features", "live"]).args(arguments);
    command
}

/// Datagrams of a few flows, in at the other end of `near`.
fn send_frames() {
    let index = Netlink::new().unwrap().link_by_name("far").unwrap().index;
    let socket = sys::socket::raw_sender(index).unwrap();
    for number in 0..FRAMES {
        let source = format!("198.51.100.1:{}", 1000 + number % FLOWS);
        let to = "198.51.100.2:53".parse().unwrap();
        let frame = build::udp(source.parse().unwrap(), to)
            .payload([7; 40])
            .frame();
        assert_eq!(
            send(socket.as_raw_fd(), &frame, MsgFlags::empty()),
            Ok(frame.len())
        );
    }
}

fn account(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = errors(output);
        panic!("{error}: {said}")
    })
}

/// Everything that was seen is exported or dropped under a name, and every row is in the file.
fn assert_adds_up(account: &Value, rows: &Path, name: &str) {
    let number = |of: &Value| of.as_u64().unwrap();
    let drops: u64 = account["drops"]
        .as_object()
        .unwrap()
        .values()
        .map(number)
        .sum();
    let exported = number(&account["packets_exported"]);
    assert_eq!(
        exported + drops,
        number(&account["packets"]),
        "{name}: {account}"
    );
    assert_eq!(number(&account["rows_lost"]), 0, "{name}");
    assert!(exported >= FRAMES, "{name}: {account}");
    let lines = fs::read_to_string(rows).unwrap().lines().count();
    assert_eq!(lines as u64, 1 + number(&account["rows"]), "{name}");
}

#[test]
fn a_signal_ends_it_with_its_rows_and_an_account_that_adds_up() {
    if !sys::require::root() {
        return;
    }
    for datapath in features::live::datapaths() {
        let name = datapath.name();
        let mut arguments = vec!["--datapath", name];
        arguments.extend((name == "af-xdp").then_some("--tap"));
        let mut capture = Capture::start(&format!("live-{name}"), &arguments);
        let told = capture.feed();
        capture.signal(Signal::SIGINT);
        let output = capture.end();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", errors(&output));
        let account = account(&output);
        assert_adds_up(&account, &capture.rows(), name);
        assert_consistent(&told, name);
    }
}

/// What Prometheus was told in the midst of a run adds up, too.
fn assert_consistent(told: &BTreeMap<String, u64>, name: &str) {
    let of = |metric: &str| told[&format!("lowroad_features_{metric}")];
    let is_drop = |metric: &&String| {
        metric.starts_with("lowroad_features_dropped_packets_total{") && !metric.contains("no_room")
    };
    let drops: u64 = told.keys().filter(is_drop).map(|metric| told[metric]).sum();
    assert_eq!(
        of("exported_packets_total") + of("open_packets") + drops,
        of("seen_packets_total"),
        "{name}: {told:?}"
    );
    assert_eq!(of("lost_rows_total"), 0, "{name}");
}

#[test]
fn it_ends_by_itself_after_its_time() {
    if !sys::require::root() {
        return;
    }
    let more = ["--datapath", "recv", "--duration", "1s"];
    let mut capture = Capture::start("live-time", &more);
    let output = capture.end();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(account(&output)["packets_unaccounted"], 0);
    // Columns, though no row.
    let rows = fs::read_to_string(capture.rows()).unwrap();
    assert!(rows.lines().count() >= 1);
}

#[test]
fn the_metrics_are_for_who_has_the_token() {
    if !sys::require::root() {
        return;
    }
    let mut capture = Capture::start("live-token", &["--datapath", "recv"]);
    capture.feed();
    let answer = capture.home.run(|| {
        let mut stream = TcpStream::connect(ADDRESS).unwrap();
        let head = format!("GET /metrics HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close");
        write!(stream, "{head}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[test]
fn what_cannot_be_captured_is_refused_in_a_line_with_its_exit_code() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("flows.csv");
    let home = Home::new("live-refused");
    for (arguments, code, says) in [
        (&["nowhere", "--datapath", "recv"][..], 2, "nowhere"),
        (&["near", "--datapath", "pigeon"][..], 2, "xdp-flow"),
        (&["near", "--datapath", "recv", "--tap"][..], 2, "xdp"),
        (&["near", "--datapath", "xdp-flow"][..], 2, "tpacket"),
        (
            &["near", "--datapath", "recv", "--workers", "0"][..],
            2,
            "--workers",
        ),
        (
            &["lo", "--datapath", "xdp-flow", "--schema", "cic.v1"][..],
            1,
            "generic",
        ),
    ] {
        let mut command = live(arguments);
        command.arg("-o").arg(&out);
        let output = home.run(|| command.output().unwrap());
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert!(!out.exists(), "{arguments:?}");
    }
}
