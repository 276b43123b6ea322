//! Programs people relay with today, set up as their manuals say. Each runs as its own process in
//! the relay's namespace; none is linked into ours.

mod dnat;
mod nginx;
mod quilkin;
mod rtpengine;
mod socat;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use datapath::Missing;
use testbed::{Child, Host};

/// What a peer is asked to relay.
#[derive(Debug)]
pub(super) struct Route<'a> {
    pub host: &'a Host,
    /// Where packets are sent from.
    pub sender: SocketAddr,
    /// Where packets should be sent to.
    pub ingest: SocketAddr,
    pub subscriber: SocketAddr,
    /// The relay's own address on the subscriber's side.
    pub egress: SocketAddr,
    /// For configuration and log files.
    pub folder: &'a Path,
}

/// A peer at work; it ends when dropped.
#[derive(Debug)]
pub(super) struct PeerProcess {
    /// Where packets must be sent to: the peer's choice, where it makes one.
    pub ingest: SocketAddr,
    /// Configuration that shapes the result, for the record.
    pub settings: String,
    pub children: Vec<Child>,
}

pub(super) trait Peer: Sync {
    fn name(&self) -> &'static str;
    fn check(&self) -> Result<(), Missing>;
    fn start(&self, route: &Route<'_>) -> Result<PeerProcess>;
}

const PEERS: &[&dyn Peer] = &[
    &rtpengine::RtpEngine,
    &nginx::Nginx,
    &socat::Socat,
    &dnat::Dnat,
    &quilkin::Quilkin,
];

pub(super) fn find(name: &str) -> Option<&'static dyn Peer> {
    PEERS.iter().copied().find(|peer| peer.name() == name)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PEERS.iter().map(|peer| peer.name())
}

/// A command whose output goes to a file in the peer's folder.
fn logged(program: &str, folder: &Path) -> Result<Command> {
    let path = folder.join(format!("{program}.log"));
    let log = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
    let mut command = Command::new(program);
    command
        .stdin(std::process::Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command)
}

/// Waits until somebody in the namespace is bound to the UDP port.
fn wait_bound(host: &Host, port: u16) -> Result<()> {
    let bound = move || {
        let hex = format!(":{port:04X} ");
        ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"]
            .iter()
            .filter_map(|path| std::fs::read_to_string(path).ok())
            .any(|table| table.contains(&hex))
    };
    crate::wait::until(&format!("UDP port {port} to be bound"), || {
        Ok(host.run(bound)?.then_some(()))
    })
}
