//! Links, addresses, next hops and program attachment.

mod address;
pub mod attach;
pub mod capability;
pub mod clsact;
mod error;
mod fib;
mod generic;
pub mod grace;
mod keeper;
mod link;
pub mod monitor;
mod neighbour;
mod netfilter;
mod netlink;
mod next_hop;
mod peer;
mod route;

pub use address::Address;
pub use error::Error;
pub use fib::{Destination, Fib, Resolution};
pub use keeper::Keeper;
pub use link::{Link, LinkSpec, XdpMode};
pub use neighbour::{Neighbour, NeighbourState};
pub use netlink::{Carrier, Netlink};
pub use next_hop::{NextHop, Unresolved};
pub use route::{Lookup, Route};
