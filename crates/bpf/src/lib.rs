//! BPF headers shared by every program, and the build helper.

#[cfg(feature = "build")]
mod build;

#[cfg(feature = "build")]
pub use build::{build, compile};
