//! Environments and links from one topology file.
//!
//! It decides where machines of an experiment live and how they are wired, sets everything about
//! the wires explicitly, and says what it set. What runs on them belongs to `experiment`.

mod asleep;
mod bed;
mod clean;
mod environment;
mod error;
mod features;
mod host;
mod impaired;
mod kept;
mod machine;
mod nic;
mod plan;
mod served;
mod settings;
mod topology;
mod vm;
mod wiring;

pub use asleep::Asleep;
pub use bed::{Bed, Remains};
pub use clean::{Cleaned, PINS, clean, folder};
pub use environment::{Child, KINDS, Kind, Program, Stream};
pub use error::Error;
pub use host::{Host, Interface, Peer};
pub use impaired::{Distribution, Impairment};
pub use kept::Kept;
pub use machine::machine;
pub use served::agent;
pub use settings::{HostSettings, LinkSettings, Neighbours};
pub use topology::{HostSpec, LinkKind, LinkSpec, Subnet, Topology};
pub use vm::{Guest, boot_ahead, huge_pages};
