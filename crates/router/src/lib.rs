//! Router and firewall: what routes and rules are, and how they are read from the tables and rule
//! sets that people have; and the data planes that forward by them. Lookup itself is `lpm`'s and `acl`'s.

mod budget;
pub mod check;
pub mod config;
pub mod cpu;
pub mod engine;
mod enum_names;
mod error;
pub mod explain;
pub mod follow;
pub mod forward;
pub mod frames;
pub mod generate;
pub mod gpu;
pub mod image;
mod json;
mod kernel;
pub mod library;
mod lines;
pub mod listing;
pub mod policy;
mod protocols;
pub mod random;
pub mod rewrite;
pub mod routes;
pub mod rules;
pub mod service;
mod shape;
mod skel;
mod source;
pub mod traffic;
pub mod xdp;

pub use error::{Error, Place};
