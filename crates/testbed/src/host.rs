//! A host of a bed: run code in it, start programs in it, ask for its interfaces.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use netdev::Netlink;
use nix::sched::CpuSet;
use serde::Serialize;
use serde_json::Value;
use sys::netns::Namespace;

use crate::environment::{EngineNetwork, Environment};
use crate::error::{Error, at};
use crate::network::confine;
use crate::process::child::Child;
use crate::process::program::Program;
use crate::topology::HostSpec;
use crate::vm::guest::Guest;

/// A device of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub name: String,
    pub ifindex: u32,
    pub mac: [u8; 6],
    pub v4: IpAddr,
    /// Unspecified where an engine has given it none.
    pub v6: IpAddr,
    pub mtu: u32,
    /// The link's place in the topology.
    pub link: usize,
    /// The hosts at the other ends.
    pub peers: Vec<Peer>,
}

/// Another host on the same link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Peer {
    pub host: String,
    pub mac: [u8; 6],
    pub v4: IpAddr,
    pub v6: IpAddr,
}

/// A running host.
#[derive(Debug)]
pub struct Host {
    name: String,
    environment: Box<dyn Environment>,
    cpus: Vec<usize>,
    netlink: Mutex<Netlink>,
    pub(crate) interfaces: Vec<Interface>,
}

impl Host {
    pub(crate) fn new(
        name: &str,
        environment: Box<dyn Environment>,
        spec: &HostSpec,
    ) -> Result<Self, Error> {
        let netlink = match environment.guest() {
            Some(guest) => guest.netlink(),
            None => {
                let namespace = environment.network().namespace();
                let opened = namespace.run(Netlink::new)?;
                opened.map_err(at(name))?
            }
        };
        Ok(Self {
            name: name.to_owned(),
            environment,
            cpus: spec.cpus.clone(),
            netlink: Mutex::new(netlink),
            interfaces: Vec::new(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace its links are in: `ip netns` lists it under the bed's name for the host.
    pub fn namespace(&self) -> &Namespace {
        self.environment.network().namespace()
    }

    /// Facts about the environment, by name.
    pub fn facts(&self) -> BTreeMap<&'static str, Value> {
        let mut facts = self.environment.facts();
        if self.guest().is_none()
            && let Ok(kernel) = fs::read_to_string("/proc/sys/kernel/osrelease")
        {
            facts.insert("kernel", kernel.trim().into());
        }
        facts
    }

    /// The guest that its devices are in, where they are not in its namespace.
    pub fn guest(&self) -> Option<&Guest> {
        self.environment.guest()
    }

    /// Whether its programs read and write this machine's files.
    pub fn shares_files(&self) -> bool {
        self.environment.agent().is_none()
    }

    /// Reads a file below `/proc` or `/sys` as a thread of this host would.
    pub fn read(&self, path: &str) -> Result<String, Error> {
        let read = match self.guest() {
            Some(guest) => guest.read(Path::new(path)).map(|bytes| lossy(&bytes)),
            None => self.within(path, || fs::read_to_string(path))?,
        };
        read.map_err(|cause| self.reading(path, cause))
    }

    /// Reads a file that a program of this host has written in the folder that it works in.
    pub fn fetch(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let fetched = match self.environment.agent() {
            Some(agent) => agent.read(path),
            None => fs::read(path),
        };
        fetched.map_err(|cause| self.reading(&path.to_string_lossy(), cause))
    }

    /// The CPUs that what runs there is confined to, by the numbers that it knows them by; empty, none in
    /// particular.
    pub fn cpus(&self) -> Vec<usize> {
        match self.guest() {
            Some(guest) => (0..guest.cpus()).collect(),
            None => self.cpus.clone(),
        }
    }

    fn reading(&self, path: &str, cause: std::io::Error) -> Error {
        Error::Reading {
            place: self.name.clone(),
            path: path.to_owned(),
            cause,
        }
    }

    /// Writes a file below `/proc` or `/sys` as a thread of this host would.
    pub fn write(&self, path: &str, value: &str) -> Result<(), Error> {
        let written = match self.guest() {
            Some(guest) => guest.write(Path::new(path), value),
            None => self.within(path, || fs::write(path, value))?,
        };
        written.map_err(|cause| self.setting(path, value, cause))
    }

    /// Writes several files below `/proc`; to a guest, all in one round trip.
    pub(crate) fn write_all(&self, files: &[(String, String)]) -> Result<(), Error> {
        let written = match self.guest() {
            Some(guest) => {
                let files = files.iter();
                let files = files.map(|(path, value)| (Path::new(path), value.as_str()));
                guest.write_all(&files.collect::<Vec<_>>())
            }
            None => self.namespace().run(|| {
                let mut each = files.iter().enumerate();
                let write = |(path, value): &(String, String)| fs::write(path, value);
                each.try_for_each(|(number, file)| write(file).map_err(|cause| (number, cause)))
            })?,
        };
        written.map_err(|(number, cause)| {
            let (path, value) = &files[number];
            self.setting(path, value, cause)
        })
    }

    fn setting(&self, path: &str, value: &str, cause: std::io::Error) -> Error {
        Error::Setting {
            place: self.name.clone(),
            key: path.to_owned(),
            value: value.to_owned(),
            cause,
        }
    }

    /// Runs `work` where `path` is this host's.
    fn within<T: Send>(&self, path: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        Ok(match path.starts_with("/sys") {
            true => self.namespace().run_with_sysfs(work)?,
            false => self.namespace().run(work)?,
        })
    }

    /// Runs `work` on a new thread in this host's network, on its CPUs, and returns its value.
    ///
    /// Sockets and programs attached by it belong to this host.
    ///
    /// # Panics
    /// When `work` does, with its message.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let mut cpus = CpuSet::new();
        for &cpu in &self.cpus {
            // The environment was refused at the start where a CPU is none of this machine's.
            let _ = cpus.set(cpu);
        }
        let confined = (!self.cpus.is_empty()).then_some(cpus);
        let ran = self
            .namespace()
            .run(move || confine(confined).map(|()| work()))?;
        ran.map_err(|cause| Error::Spawn {
            host: self.name.clone(),
            program: "a thread on its CPUs".to_owned(),
            cause,
        })
    }

    /// Starts a program inside this host's environment, on its CPUs. It dies with this process and with
    /// the bed.
    pub fn start(&self, program: Program) -> Result<Child, Error> {
        let name = program.words()[0].to_string_lossy().into_owned();
        self.environment
            .start(program)
            .map_err(|cause| Error::Spawn {
                host: self.name.clone(),
                program: name,
                cause,
            })
    }

    /// Starts a program of this machine in this host's network, whatever its environment, on its CPUs.
    /// It dies with this process and with the bed.
    pub fn spawn(&self, command: Command) -> Result<Child, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.environment
            .network()
            .spawn(command)
            .map_err(|cause| Error::Spawn {
                host: self.name.clone(),
                program,
                cause,
            })
    }

    /// Whether its environment can serve another bed after this one.
    pub(crate) fn is_reusable(&self) -> bool {
        self.environment.agent().is_some()
    }

    /// Its place in the network of its engine, where it has one.
    pub(crate) fn engine_network(&self) -> Option<&EngineNetwork> {
        self.environment.engine_network()
    }

    /// The IPv4 address by which it reaches `peer`, over the first link between the two.
    pub fn reaches(&self, peer: &str) -> Result<IpAddr, Error> {
        let peers = &self.interface(peer)?.peers;
        let found = peers.iter().find(|other| other.host == peer);
        found
            .map(|other| other.v4)
            .ok_or_else(|| self.no_interface(peer))
    }

    fn no_interface(&self, peer: &str) -> Error {
        Error::NoInterface {
            host: self.name.clone(),
            peer: peer.to_owned(),
        }
    }

    /// The device on the first link to `peer`.
    pub fn interface(&self, peer: &str) -> Result<&Interface, Error> {
        self.interfaces
            .iter()
            .find(|interface| interface.peers.iter().any(|other| other.host == peer))
            .ok_or_else(|| self.no_interface(peer))
    }

    /// Every device, in the order of the topology's links.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// This host's tables, from any thread.
    pub fn netlink(&self) -> MutexGuard<'_, Netlink> {
        self.netlink.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
