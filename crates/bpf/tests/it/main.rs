//! The integration tests of `bpf`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod common;
mod headers;
mod maps;
mod twins;
