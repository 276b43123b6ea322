//! Links, addresses, next hops and program attachment.

mod address;
pub mod attach;
mod attachments;
pub mod capability;
pub mod clsact;
mod error;
mod fib;
mod generic;
pub mod grace;
mod link;
pub mod monitor;
mod neighbour;
mod netlink;
mod next_hop;
mod next_hop_tracker;
mod peer;
pub mod policy;
mod program;
pub mod requirement;
mod route;
mod socket;

pub use address::Address;
pub use attachments::{Attachments, Hook};
pub use error::Error;
pub use fib::{Destination, Fib, Resolution};
pub use link::{Link, LinkSpec, XdpMode};
pub use neighbour::{Neighbour, NeighbourState};
pub use netlink::Netlink;
pub use next_hop::{NextHop, UnresolvedReason};
pub use next_hop_tracker::NextHopTracker;
pub use route::{Lookup, Route};
pub use socket::Carrier;
