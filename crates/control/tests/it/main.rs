//! The integration tests of `control`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod fuzz;
mod http;
mod metrics;
mod unix;
