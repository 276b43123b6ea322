//! What every crate with BPF programs shares: their headers, how they are built and loaded, and typed
//! access to their maps. Where programs are attached, `netdev::attach` decides.

#[cfg(feature = "build")]
mod build;
mod error;
mod load;
mod map;
mod plain;
#[cfg(feature = "build")]
mod plain_types;
mod run;
mod skeleton;

#[cfg(feature = "build")]
pub use build::{build, compile};
pub use error::Error;
pub use load::{load, program};
pub use map::{Counters, Map, PerCpu};
pub use plain::{Plain, bytes_of};
pub use run::{Run, run};
