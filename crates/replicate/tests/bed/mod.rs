//! What a mirror is tried on: file systems, a workload, a log, and who looks at the result.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod file_system;
pub(crate) mod recording;
pub(crate) mod trees;
pub(crate) mod workload;
