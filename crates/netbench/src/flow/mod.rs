//! What the flows of several tests share at either end: payload, datagrams, times and counts.

mod client;
mod clock;
pub(crate) mod datagram;
pub(crate) mod payload;
mod server;
mod totals;

pub(crate) use client::ClientFlow;
pub(crate) use clock::{ANSWER_TIMEOUT, Clock};
pub(crate) use server::{DatagramFlow, PolledStream};
pub(crate) use totals::{Totals, Window};
