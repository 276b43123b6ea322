//! The environment of a host: it runs the host's programs, and has the network that its links plug into.
//!
//! This file has what all environments share and imports none of them. A new environment is one file that has a
//! [`Kind`], which [`crate::KINDS`] names.

pub(crate) mod docker;
pub(crate) mod engine;
pub(crate) mod native;
pub(crate) mod oci;
pub(crate) mod podman;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use datapath::Missing;
use serde_json::Value;
use sys::netns::Namespace;

use crate::agent::client::Agent;
use crate::error::Error;
use crate::network::Network;
use crate::process::child::Child;
use crate::process::program::Program;
use crate::vm::guest::Guest;

/// A running machine: a namespace of this one, a container, a virtual machine. Dropping it kills what
/// runs inside and removes it.
pub(crate) trait Environment: Send + Sync + std::fmt::Debug {
    /// The network that its links plug into.
    fn network(&self) -> &Network;

    /// Starts a program inside. It dies with this process, but for what [`crate::clean`] ends.
    fn start(&self, program: Program) -> io::Result<Child>;

    /// The guest that its ends of links are in, where that is not the network itself.
    fn guest(&self) -> Option<&Guest> {
        None
    }

    /// The agent inside, where files are others than this machine's.
    fn agent(&self) -> Option<&Agent> {
        None
    }

    /// Its place in the network of its engine, where it has one.
    fn engine_network(&self) -> Option<&EngineNetwork> {
        None
    }

    /// Facts for the record of a trial.
    fn facts(&self) -> BTreeMap<&'static str, Value> {
        BTreeMap::new()
    }
}

/// A container's place in its engine's own network.
#[derive(Debug)]
pub(crate) struct EngineNetwork {
    /// The namespace of the engine's bridge.
    pub(crate) namespace: Namespace,
    /// The address at which the container's ports are published there.
    pub(crate) published_address: IpAddr,
    /// The container's own device and its address.
    pub(crate) device: String,
    pub(crate) address: IpAddr,
}

/// The bed's request to the environment of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvironmentSpec<'a> {
    /// The name of everything that outlives this process: it names the owner and the host.
    pub name: &'a str,
    /// CPUs that its programs are confined to; empty for any.
    pub cpus: &'a [usize],
    /// The number of its links.
    pub links: usize,
    /// The ports that an engine publishes for it.
    pub publish: &'a [u16],
    /// Capabilities of programs in an engine's container beside those that the engine gives.
    pub capabilities: &'a [String],
    /// Whether a virtual machine's memory is in huge pages.
    pub huge_pages: bool,
}

/// A kind of environment.
#[derive(Debug)]
pub struct Kind {
    /// The name a topology has under `env`.
    pub name: &'static str,
    /// Whether it has a kernel, a clock and files of its own, which processes outside cannot reach.
    pub guest: bool,
    /// Why this machine has no such environment. It changes nothing except caches.
    pub probe: fn() -> Result<(), Missing>,
    /// The same as far as it is known without getting anything.
    pub look: fn() -> Result<(), Missing>,
    /// Takes an instance from a pool, else probes and makes one.
    pub(crate) up: fn(EnvironmentSpec<'_>) -> Result<Box<dyn Environment>, Error>,
}

impl Kind {
    /// A machine of this kind, without links.
    pub(crate) fn up(&self, spec: EnvironmentSpec<'_>) -> Result<Box<dyn Environment>, Error> {
        (self.up)(spec)
    }
}
