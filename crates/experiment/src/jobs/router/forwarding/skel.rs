//! Generated from `bpf/forward.bpf.c`.
#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    elided_lifetimes_in_paths,
    missing_debug_implementations,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_qualifications,
    reason = "generated code"
)]

include!(concat!(env!("OUT_DIR"), "/forward.skel.rs"));
