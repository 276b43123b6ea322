//! Generated from `bpf/capture.bpf.c`, and what the programs write, read as the structures they are.
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "one comment is for all structures"
)]

bpf::skeleton!(pub(super) mod capture = "capture");

pub(super) use bpf::Plain;
pub(super) use capture::*;

// SAFETY: the BPF header asserts that these have no implicit padding.
unsafe impl Plain for types::event {}
unsafe impl Plain for types::state {}
unsafe impl Plain for types::file_key {}
unsafe impl Plain for types::answer {}
unsafe impl Plain for types::bss {}
