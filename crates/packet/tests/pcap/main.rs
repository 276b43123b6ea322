//! Capture files written here and byte by byte, read back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod arrival;
mod broken;
mod formats;
mod outside;
mod packed;
mod samples;
