//! Shared by every crate with BPF programs: headers, building and loading, and typed access to maps.
//! `netdev::attach` attaches programs.

mod batch;
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

pub use batch::{Batch, Cursor};
#[cfg(feature = "build")]
pub use build::{build, compile};
pub use error::Error;
pub use load::{load, program};
pub use map::{Counters, Map, PerCpu};
pub use plain::{Plain, bytes_of};
pub use run::{Run, run};
