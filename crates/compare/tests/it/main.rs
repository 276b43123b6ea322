//! Tests of the program `lowroad-compare`. A test that runs an experiment is in a module named `exclusive`: the test
//! runner never runs two of those at the same time.

#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod away;
mod catalog;
mod common;
mod demo;
mod documentation;
mod input;
mod interruption;
mod netbench;
mod own_program;
mod placement;
mod replicate;
mod report;
mod router;
