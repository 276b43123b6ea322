//! Signals and limits of this process, and the files of its secrets, for every program. The crate is small because netbench's agent links it.

pub mod limits;
pub mod secret;
pub mod shutdown;
