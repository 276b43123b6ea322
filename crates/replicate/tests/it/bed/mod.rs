//! What a mirror is tried on: file systems, a workload, a log, and who looks at the result.

pub(crate) mod file_system;
pub(crate) mod recording;
pub(crate) mod trees;
pub(crate) mod workload;
