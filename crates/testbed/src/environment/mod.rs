//! Where a host lives: what runs its programs, and which network its links plug into.
//!
//! A new environment is one file with a [`Kind`], named in [`KINDS`].

mod child;
mod docker;
mod engine;
mod libraries;
mod native;
mod network;
mod oci;
mod podman;
mod program;
mod ready;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use datapath::Missing;
use serde_json::Value;
use sys::netns::Namespace;

pub use self::child::Child;
pub(crate) use self::engine::{Container, IMAGES, WAITING, clean as clean_engines};
pub(crate) use self::libraries::libraries;
pub(crate) use self::network::{Network, confine, kill_inside};
pub(crate) use self::oci::{Contents, runtime as container_runtime};
pub(crate) use self::program::find;
pub use self::program::{Program, Stream};
pub(crate) use self::ready::NOTIFY_SOCKET;
use crate::Error;
use crate::served::Served;
use crate::vm::{self, Guest};

/// A running machine: a namespace of this one, a container, a virtual machine. Dropping it kills what
/// runs inside and removes it.
pub(crate) trait Environment: Send + Sync + std::fmt::Debug {
    /// What its links plug into.
    fn network(&self) -> &Network;

    /// Starts a program inside. It dies with this process, but for what [`crate::clean`] ends.
    fn start(&self, program: Program) -> io::Result<Child>;

    /// The guest that its ends of links are in, where that is not the network itself.
    fn guest(&self) -> Option<&Guest> {
        None
    }

    /// The agent inside, where files are others than this machine's.
    fn served(&self) -> Option<&Served> {
        None
    }

    /// The engine's own network that it is on, where it is on one.
    fn published(&self) -> Option<&Published> {
        None
    }

    /// What a trial's record keeps of it.
    fn facts(&self) -> BTreeMap<&'static str, Value> {
        BTreeMap::new()
    }
}

/// What an engine has made of a container's network.
#[derive(Debug)]
pub(crate) struct Published {
    /// Where the engine's bridge is.
    pub(crate) outside: Namespace,
    /// The address at which its ports are published there.
    pub(crate) at: IpAddr,
    /// Its own device and address.
    pub(crate) device: String,
    pub(crate) inside: IpAddr,
}

/// What a bed asks of the environment that a host lives in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// What everything that outlives this process is called: it tells the owner and the host.
    pub name: &'a str,
    /// CPUs that what runs there is confined to; empty, none in particular.
    pub cpus: &'a [usize],
    /// How many links it is to have.
    pub links: usize,
    /// Ports of its that an engine is to publish.
    pub publish: &'a [u16],
    /// What programs of an engine's container may do beside what its engine gives.
    pub capabilities: &'a [String],
    /// Whether a virtual machine's memory is to be in huge pages.
    pub huge_pages: bool,
}

/// A kind of environment.
#[derive(Debug)]
pub struct Kind {
    /// The name a topology has under `env`.
    pub name: &'static str,
    /// Whether it has a kernel, a clock and files of its own, which nobody outside can reach.
    pub guest: bool,
    /// Why this machine has no such environment. It changes nothing but what is kept in caches.
    pub probe: fn() -> Result<(), Missing>,
    /// The same as far as it is known without getting anything.
    pub look: fn() -> Result<(), Missing>,
    /// Probes first, unless one is there that waits.
    pub(crate) up: fn(Wanted<'_>) -> Result<Box<dyn Environment>, Error>,
}

/// Every kind there is.
pub const KINDS: &[Kind] = &[
    native::KIND,
    oci::KIND,
    docker::KIND,
    podman::KIND,
    vm::KIND,
    vm::RT_KIND,
    vm::OCI_KIND,
];

impl Kind {
    /// The kind that a topology calls `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// A machine of this kind, without links.
    pub(crate) fn up(&self, wanted: Wanted<'_>) -> Result<Box<dyn Environment>, Error> {
        (self.up)(wanted)
    }
}

/// The names of all kinds.
pub(crate) fn names() -> String {
    KINDS
        .iter()
        .map(|kind| kind.name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// What making network namespaces needs.
pub(crate) fn root() -> Result<(), Missing> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(Missing::new(
            "network namespaces need root",
            "run with sudo",
        )),
    }
}
