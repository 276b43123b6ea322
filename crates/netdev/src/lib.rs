//! Links, addresses, next hops and program attachment.

mod next_hop;

pub use next_hop::{NextHop, Unresolved};
