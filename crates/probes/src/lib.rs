//! Delay probes, CPU accountant and stack sampler: what a trial cost, seen from the kernel.
//!
//! It measures and counts; what is compared, and whether a difference is real, belongs to
//! `experiment` and `stats`.

pub mod account;
pub mod delay;
pub mod disturb;
mod error;
pub mod occupancy;
pub mod programs;
pub mod ps;
pub mod receiver;
pub mod stacks;

pub use error::Error;

use netdev::requirement::Requirement;
use sys::caps::Capability;

/// The requirements of each probe, by the name that `lowroad doctor` prints.
pub const REQUIREMENTS: &[(&str, &[Requirement])] = &[
    ("delay", delay::REQUIREMENTS),
    ("cpu", TRACING),
    ("stacks", stacks::REQUIREMENTS),
    ("foreign", TRACING),
];

/// The requirements of programs at tracepoints.
pub(crate) const TRACING: &[Requirement] = &[
    Requirement::TypeInformation,
    Requirement::Capabilities(&[Capability::Bpf, Capability::Perfmon]),
];
