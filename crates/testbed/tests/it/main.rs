//! The integration tests of `testbed`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod bed;
mod bed_lock;
mod container;
mod engines;
mod impairment;
mod nic;
mod orphans;
mod vm;
