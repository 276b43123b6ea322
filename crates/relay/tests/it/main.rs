//! The integration tests of `relay`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod addressees;
mod af_xdp;
mod bad_input;
mod batch;
mod bpf_datapaths;
mod bpf_membership;
mod bpf_xdp;
mod common;
mod core;
mod devices;
mod differential;
mod direct;
mod keys;
mod limits;
mod multicast;
mod policy;
mod reload;
mod same_output;
mod traps;
mod userspace;
