//! What every crate with BPF programs shares: their headers, how they are built, and how what they
//! write is read.

#[cfg(feature = "build")]
mod build;
mod plain;
mod skeleton;

#[cfg(feature = "build")]
pub use build::{build, compile};
pub use plain::Plain;
