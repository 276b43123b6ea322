//! What the flows of several tests share at either end: payload, datagrams, times and counts.

mod client;
mod clock;
pub(crate) mod datagram;
pub(crate) mod payload;
pub(crate) mod requests;
pub(crate) mod sequence;
mod server;
mod totals;

pub(crate) use client::ClientFlow;
pub(crate) use clock::{ANSWER_TIMEOUT, Clock, MAX_ANSWER_TIMEOUT, Transaction};
pub use sequence::Arrivals;
pub(crate) use server::{ConnectionFlow, DatagramFlow, Lateness, PolledStream};
pub use totals::LatencySummary;
pub(crate) use totals::{Counter, Totals, Window};
