//! One stream in, many receivers out.

pub mod af_xdp;
pub mod config;
pub mod control;
pub mod core;
pub mod counters;
pub mod handover;
mod kernel;
pub mod plan;
mod prefix;
pub mod spec;
pub mod tc;
pub mod userspace;
pub mod xdp;

pub use kernel::{Punt, PuntKind, PuntRing};

/// The relay as a job: what its datapaths are asked, count and offer.
#[derive(Debug)]
pub enum Relay {}

impl datapath::Job for Relay {
    type Plan = plan::Plan;
    type Counters = counters::Counters;
    type Summary = counters::Counters;
    type FastPath = dyn handover::FastPath;
}

/// A datapath of the relay, running.
pub type Running = Box<dyn datapath::Running<Relay>>;

/// Every datapath of the relay, userspace first. A new one is one line here.
pub fn datapaths() -> Vec<Box<dyn datapath::Datapath<Relay>>> {
    vec![
        Box::new(userspace::recv()),
        Box::new(userspace::mmsg()),
        Box::new(userspace::gso()),
        Box::new(userspace::busy()),
        Box::new(tc::Tc),
        Box::new(xdp::Xdp),
        Box::new(af_xdp::AfXdp),
    ]
}
