//! A live capture in a namespace of its own, and its metrics.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netdev::Netlink;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;
use packet::build;
use serde_json::Value;
use tempfile::TempDir;

use crate::relay_server::{Home, errors, lowroad};
use crate::scrape::{self, write_token};

pub(crate) const ADDRESS: &str = "127.0.0.1:8641";
pub(crate) const FRAMES: u64 = 300;
pub(crate) const FLOWS: u64 = 10;
const ERRORS: &str = "errors";

/// A capture on the device `near`, killed when dropped.
pub(crate) struct Capture {
    child: Option<Child>,
    pub(crate) folder: TempDir,
    pub(crate) home: Home,
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

impl Capture {
    pub(crate) fn start(name: &str, more: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), name, more)
    }

    /// With a folder that already holds what the arguments name.
    pub(crate) fn start_in(folder: TempDir, name: &str, more: &[&str]) -> Self {
        let home = Home::new(name);
        let token = write_token(folder.path());
        let errors = fs::File::create(folder.path().join(ERRORS)).unwrap();
        let mut command = live(&["near", "--json"]);
        command
            .args(["--metrics", ADDRESS, "--metrics-token"])
            .arg(token)
            .arg("-o")
            .arg(folder.path().join("flows.csv"))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(errors);
        let child = home.run(|| command.spawn().unwrap());
        Self {
            child: Some(child),
            folder,
            home,
        }
    }

    pub(crate) fn rows(&self) -> PathBuf {
        self.folder.path().join("flows.csv")
    }

    /// Sends frames until the capture tells of them: it may not have begun yet.
    pub(crate) fn feed(&mut self) -> BTreeMap<String, u64> {
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
    pub(crate) fn scrape(&self) -> BTreeMap<String, u64> {
        scrape(&self.home)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().unwrap().id();
        kill(Pid::from_raw(id.cast_signed()), signal).unwrap();
    }

    /// What it has warned of so far.
    pub(crate) fn warned(&self) -> String {
        fs::read_to_string(self.folder.path().join(ERRORS)).unwrap()
    }

    /// What it has said at its end.
    pub(crate) fn end(&mut self) -> Output {
        let mut output = self.child.take().unwrap().wait_with_output().unwrap();
        output.stderr = self.warned().into_bytes();
        output
    }
}

pub(crate) fn live(arguments: &[&str]) -> Command {
    let mut command = lowroad();
    command.args(["features", "live"]).args(arguments);
    command
}

/// Datagrams of a few flows, in at the other end of `near`.
pub(crate) fn send_frames() {
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

pub(crate) fn account(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = errors(output);
        panic!("{error}: {said}")
    })
}

/// What Prometheus would be told now, by name and labels; nothing before it listens.
pub(crate) fn scrape(home: &Home) -> BTreeMap<String, u64> {
    let Some(page) = home.run(|| scrape::try_scrape(ADDRESS)) else {
        return BTreeMap::new();
    };
    let counts = page.samples().map(|sample| {
        let label = |(label, value): (&String, &String)| format!("{{{label}={value:?}}}");
        let labels: String = sample.labels.iter().map(label).collect();
        let name = format!("{}{labels}", sample.name);
        (name, sample.value.to_string().parse().unwrap())
    });
    counts.collect()
}
