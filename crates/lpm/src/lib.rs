//! Longest-prefix match: which next hop an address has, for batches of addresses. A [`Rib`] is the
//! authoritative set of prefixes; [`Fib4`] and [`Fib6`] are tables made for lookup, changed by one
//! writer prefix by prefix while [`Reader4`]s and [`Reader6`]s look up in other threads.

mod error;
mod fib4;
mod fib6;
mod memory;
mod next_hop;
mod rib;

pub use ::prefix::{Address, Prefix, Prefix4, Prefix6, PrefixError};
pub use error::Error;
pub use fib4::{Capacity4, Fib4, Layout4, Reader4};
pub use fib6::{Capacity6, Fib6, Layout6, Reader6};
pub use memory::{Content, Contents, Provider, Section};
pub use next_hop::{NO_ROUTE, NextHop};
pub use rib::{Rib, RibIter};
pub use sys::simd::Simd;
