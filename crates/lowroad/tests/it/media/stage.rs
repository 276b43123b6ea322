//! Sender, relay and receiver in namespaces, with the relay serving three streams to two receivers.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testbed::{Bed, Child, HostSpec, LinkKind, LinkSpec, Topology};

use super::ffmpeg;
use super::frames::Recording;

/// A stream, and the port it comes in on.
pub(crate) const VIDEO: u16 = 5004;
pub(crate) const AUDIO: u16 = 5006;
pub(crate) const TRANSPORT_STREAM: u16 = 5010;
/// Receivers by name, and what their ports are above the stream's.
const RECEIVERS: [(&str, u16); 2] = [("stays", 2000), ("returns", 2100)];

/// A relay that serves, between a sender and a receiver.
pub(crate) struct Stage {
    // The relay ends before its namespaces do.
    _relay: Child,
    pub(crate) bed: Bed,
    folder: tempfile::TempDir,
    ingest: IpAddr,
    receiver: IpAddr,
}

impl Stage {
    pub(crate) fn set(datapath: &str) -> Self {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let bed = Bed::up(&topology(), &format!("m{number}")).unwrap();
        let relay = bed.host("relay").unwrap();
        let ingest = relay.interface("sender").unwrap().v4;
        let receiver = bed.host("receiver").unwrap().interface("relay").unwrap().v4;
        let path = folder.path().join("relay.toml");
        fs::write(&path, config(datapath, ingest, receiver, folder.path())).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
        command
            .args(["relay", "serve", "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = relay.spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(
            line.starts_with("ready"),
            "{datapath}: the relay said {line:?}"
        );
        Self {
            _relay: process,
            bed,
            folder,
            ingest,
            receiver,
        }
    }

    /// Where a stream comes in.
    pub(crate) fn ingest(&self, stream: u16) -> SocketAddr {
        SocketAddr::new(self.ingest, stream)
    }

    /// Where a receiver gets a stream.
    pub(crate) fn destination(&self, stream: u16, receiver: &str) -> SocketAddr {
        let (_, above) = RECEIVERS
            .into_iter()
            .find(|(name, _)| *name == receiver)
            .unwrap();
        SocketAddr::new(self.receiver, stream + above)
    }

    /// A new folder for what a program writes.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let mut path = self.folder.path().join(name);
        while path.exists() {
            path.as_mut_os_string().push("+");
        }
        fs::create_dir(&path).unwrap();
        path
    }

    /// Starts a program that receives, and waits until it has bound all its ports.
    pub(crate) fn receive(&self, command: Command, ports: &[u16]) -> Child {
        let mut child = self.bed.host("receiver").unwrap().spawn(command).unwrap();
        let bound = format!("/proc/{}/net/udp", child.id());
        super::until("a receiver", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("a receiver ended at once: {status}");
            }
            let table = fs::read_to_string(&bound).unwrap_or_default();
            ports
                .iter()
                .all(|port| table.contains(&format!(":{port:04X} ")))
        });
        child
    }
}

fn topology() -> Topology {
    let mut topology = Topology::default();
    for name in ["sender", "relay", "receiver"] {
        topology.host.insert(name.to_owned(), HostSpec::native());
    }
    for ends in [["sender", "relay"], ["relay", "receiver"]] {
        topology.link.push(LinkSpec::new(LinkKind::Direct, &ends));
    }
    topology
}

fn config(datapath: &str, ingest: IpAddr, receiver: IpAddr, folder: &Path) -> String {
    let socket = folder.join("relay.sock");
    let mut text = format!("[relay]\ncontrol = \"{}\"\n", socket.display());
    for stream in [VIDEO, AUDIO, TRANSPORT_STREAM] {
        write!(
            text,
            "[[stream]]\nname = \"s{stream}\"\nlisten = \"{ingest}:{stream}\"\n\
             datapath = \"{datapath}\"\nsource = \"any\"\n"
        )
        .unwrap();
        for (name, above) in RECEIVERS {
            write!(
                text,
                "[[stream.subscriber]]\nname = \"{name}\"\nto = \"{receiver}:{}\"\n",
                stream + above
            )
            .unwrap();
        }
    }
    text
}

/// The receivers of one name: one of RTP video and audio, one of the transport stream.
pub(crate) struct Set {
    receivers: Vec<(Child, PathBuf)>,
}

impl Set {
    pub(crate) fn start(stage: &Stage, name: &str) -> Self {
        Self {
            receivers: vec![
                ffmpeg::receive_rtp(stage, name),
                ffmpeg::receive_transport_stream(stage, name),
            ],
        }
    }

    pub(crate) fn recordings(&self) -> impl Iterator<Item = Recording> {
        self.receivers.iter().map(|(_, file)| Recording::read(file))
    }

    /// Whether each has recorded so many frames, and audio as well.
    pub(crate) fn has(&self, frames: usize) -> bool {
        self.recordings()
            .all(|recording| recording.video.len() >= frames && !recording.audio.is_empty())
    }

    pub(crate) fn stop(&mut self) {
        for (child, _) in &mut self.receivers {
            child.stop(Duration::from_secs(5)).unwrap();
        }
    }
}
