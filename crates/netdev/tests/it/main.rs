//! The integration tests of `netdev`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod attach;
mod capability;
mod cgroup;
mod common;
mod fib;
mod forwarding;
mod next_hop_tracker;
mod policy;
mod traffic_control;
