//! What the integration tests of several crates share: servers and engines that a test starts, a reader of metrics, and a
//! lock for tests that clean the machine. Only dev-dependencies name this crate.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

pub mod bpf_link;
pub mod cleaning;
pub mod daemon;
pub mod differential;
pub mod exposition;
pub mod nats_server;
pub mod policies;
pub mod zoo;

/// The path of a test as its test program lists it: the module, without the crate's name, and the function.
#[must_use]
pub fn test_path(module: &str, test: &str) -> String {
    let (_program, module) = module.split_once("::").unwrap();
    format!("{module}::{test}")
}
