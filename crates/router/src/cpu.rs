//! The router on CPUs: tables that one thread changes, lookups in as many threads as wanted, and
//! packets from memory, from captures and from devices.

pub mod af_xdp;
mod hops;
mod lookup;
mod rules;
mod tables;

pub use hops::Hops;
pub use lookup::Lookup;
pub use rules::Lists;
pub use tables::{Error, Options, Tables};
