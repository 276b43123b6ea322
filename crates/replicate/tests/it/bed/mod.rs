//! The environment of mirror tests: file systems, a workload, a log, and a comparison of the
//! results.

pub(crate) mod file_system;
pub(crate) mod recording;
pub(crate) mod trees;
pub(crate) mod workload;
