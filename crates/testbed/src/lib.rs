//! Environments and links from one topology file.
//!
//! It decides where machines of an experiment live and how they are wired, sets everything about
//! the wires explicitly, and says what it set. What runs on them belongs to `experiment`.

mod agent;
mod bed;
mod clean;
mod environment;
mod error;
mod features;
mod host;
mod impairment;
mod instance_pool;
mod kinds;
mod names;
mod network;
mod nic;
mod pause;
mod plan;
mod pool;
mod process;
mod settings;
mod topology;
mod vm;
mod wiring;

pub use agent::binary::agent;
pub use bed::{Bed, Teardown};
pub use clean::{CleanReport, PINS, clean};
pub use environment::Kind;
pub use error::Error;
pub use host::{Host, Interface, Peer};
pub use impairment::{Distribution, Impairment};
pub use instance_pool::InstancePool;
pub use kinds::{KINDS, machine};
pub use names::folder;
pub use pause::PauseGuard;
pub use process::child::Child;
pub use process::program::{Program, Stream};
pub use settings::{HostSettings, LinkSettings, Neighbours};
pub use topology::{HostSpec, LinkKind, LinkSpec, Subnet, Topology};
pub use vm::boot_ahead;
pub use vm::guest::Guest;
pub use vm::requirements::huge_pages;
