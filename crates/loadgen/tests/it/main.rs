//! The integration tests of `loadgen`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod far_end;
mod replay;
mod support;
