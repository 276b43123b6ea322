//! Mirrors a directory tree as a program changes it, without the program's help.
//!
//! [`capture`] turns the kernel's file operations into [`record::Record`]s. [`log`] stores them,
//! and [`restore`] rebuilds the tree of any epoch from them. [`ship`] copies the log to other
//! machines, [`verify`] compares a folder with the logged tree, and [`service`] runs all of this
//! until it is told to stop.

pub mod apply;
pub mod capture;
pub mod codec;
mod contents;
pub mod coverage;
pub mod diff;
pub mod epochs;
mod folder;
pub mod log;
mod make;
pub mod patterns;
pub mod record;
pub mod restore;
pub mod service;
pub mod ship;
mod space;
pub mod tree;
pub mod verify;
