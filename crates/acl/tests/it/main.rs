//! The integration tests of `acl`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod classbench;
mod exact;
mod live;
