//! A relay in a network namespace of its own; both end with the test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use netdev::{LinkSpec, Netlink};
use sys::netns::{self, Namespace};
use tempfile::TempDir;

/// A stream over the loopback.
pub(crate) const STREAM: &str = "[[stream]]\nname = \"good\"\nlisten = \"127.0.0.1:5004\"\n\
    datapath = \"recv\"\nsource = \"any\"\ninterfaces = [\"lo\"]\n\
    [[stream.subscriber]]\nname = \"a\"\nto = \"127.0.0.1:6000\"\n";

pub(crate) fn lowroad() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A namespace with the loopback and a device to 192.0.2.0/24, removed when dropped.
pub(crate) struct Home {
    name: String,
    namespace: Namespace,
}

impl Home {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("lr-bed-{}-test-{name}", sys::owner::Owner::current());
        let namespace = Namespace::create(&name).unwrap();
        let home = Self { name, namespace };
        home.run(wire);
        home
    }

    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A test that fails has its own complaint.
        let _removed = netns::remove(&self.name);
    }
}

/// A process, killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A relay that is ready. The process ends before its namespace goes.
pub(crate) struct Relay {
    process: Process,
    pub(crate) ready: String,
    pub(crate) folder: TempDir,
    pub(crate) home: Home,
}

impl Relay {
    pub(crate) fn serve(name: &str, streams: &str) -> Self {
        Self::serve_in(tempfile::tempdir().unwrap(), name, streams)
    }

    /// With a folder that already holds what the configuration names.
    pub(crate) fn serve_in(folder: TempDir, name: &str, streams: &str) -> Self {
        let home = Home::new(name);
        let mut command = command(folder.path(), "relay", streams);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process(home.run(|| command.spawn().unwrap()));
        let mut ready = String::new();
        let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready"), "{ready}");
        Self {
            process,
            ready,
            folder,
            home,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("relay.sock")
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.process.0.id()
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        lowroad()
            .args(["relay", "--control"])
            .arg(self.socket())
            .args(words)
            .output()
            .unwrap()
    }

    /// Panics unless a datagram still comes through.
    pub(crate) fn relays(&self, number: u8) {
        self.home.run(|| {
            let receiver = UdpSocket::bind("127.0.0.1:6000").unwrap();
            let wait = Some(Duration::from_secs(10));
            receiver.set_read_timeout(wait).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            sender.send_to(&[number], "127.0.0.1:5004").unwrap();
            let mut payload = [0; 2];
            assert_eq!(receiver.recv(&mut payload).unwrap(), 1);
            assert_eq!(payload[0], number);
        });
    }

    /// Ends it; what it said on standard error.
    pub(crate) fn end(mut self) -> String {
        let mut stderr = self.process.0.stderr.take().unwrap();
        self.process.0.kill().unwrap();
        let mut said = String::new();
        stderr.read_to_string(&mut said).unwrap();
        said
    }
}

/// The command that serves `streams`, its control socket in `folder` under `name`.
pub(crate) fn command(folder: &Path, name: &str, streams: &str) -> Command {
    let (socket, config) = (folder.join(format!("{name}.sock")), folder.join(name));
    let control = format!("[relay]\ncontrol = \"{}\"\n", socket.display());
    fs::write(&config, format!("{control}{streams}")).unwrap();
    let mut command = lowroad();
    command.args(["relay", "serve", "--config"]).arg(config);
    command
}

fn wire() {
    let mut netlink = Netlink::new().unwrap();
    let (near, far) = (LinkSpec::new("near"), LinkSpec::new("far"));
    netlink.add_veth(&near, &far).unwrap();
    for name in ["lo", "near", "far"] {
        let index = netlink.link_by_name(name).unwrap().index;
        netlink.set_link(index, &LinkSpec::unnamed().up()).unwrap();
    }
    let index = netlink.link_by_name("near").unwrap().index;
    let address = "192.0.2.1".parse().unwrap();
    netlink.add_addresses(&[(index, address, 24)]).unwrap();
}
