//! The integration tests of `probes`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod delay;
