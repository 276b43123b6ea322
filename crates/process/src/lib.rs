//! Signals and limits of this process, for every program. The crate is small because netbench's agent links it.

pub mod limits;
pub mod shutdown;
