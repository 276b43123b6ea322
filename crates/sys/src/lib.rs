//! The unsafe corners of the system: namespaces, socket batches, ethtool, perf events, scheduling.
pub mod require;
