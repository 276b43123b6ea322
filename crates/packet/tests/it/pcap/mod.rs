//! Capture files written here and byte by byte, read back.

mod arrival;
mod compression;
mod corpus;
mod damage;
mod formats;
pub(crate) mod samples;
