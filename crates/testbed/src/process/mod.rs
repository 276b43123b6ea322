//! Programs that environments run: what to start, the running program, and how it says that it is ready.

pub(crate) mod child;
pub(crate) mod libraries;
pub(crate) mod program;
pub(crate) mod sd_notify;
