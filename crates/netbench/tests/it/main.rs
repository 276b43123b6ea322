//! The integration tests of `netbench`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod docs;
mod impairment;
mod measure;
mod paths;
mod refusals;
mod slow;
mod wire;
