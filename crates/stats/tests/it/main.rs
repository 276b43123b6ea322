//! The integration tests of `stats`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

#[path = "../../examples/verdict/noise.rs"]
mod noise;
mod simulation;
