//! The integration tests of `router`: one program, one module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod af_xdp_network;
mod common;
mod cpu;
mod following;
mod fuzz;
mod gpu;
mod hostile;
mod image;
mod listings;
mod lists;
mod mrt;
mod nft;
mod nft_listing;
mod rules;
mod xdp;
mod xdp_network;
