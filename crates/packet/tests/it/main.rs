//! The integration tests of `packet`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod build;
mod common;
mod fuzz;
mod pcap;
