//! Capture files written here and byte by byte, read back.

mod arrival;
mod broken;
mod formats;
mod outside;
mod packed;
pub(crate) mod samples;
