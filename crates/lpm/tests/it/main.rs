//! The integration tests of `lpm`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod common;
mod fib4;
mod fib6;
mod memory;
