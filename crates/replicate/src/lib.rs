//! Mirrors a directory tree as a program changes it, without the program's help.
//!
//! [`capture`] turns what the kernel does to files into [`record::Record`]s, [`log`] keeps them, and
//! [`restore`] makes the tree of them as of any epoch; [`ship`] copies them to other machines,
//! [`verify`] says whether a folder is that tree, and [`service`] is all that goes on until it is told to
//! end.

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
