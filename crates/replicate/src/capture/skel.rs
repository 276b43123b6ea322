//! Generated from `bpf/capture.bpf.c`.

bpf::skeleton!(pub(super) mod capture = "capture");

pub(super) use bpf::Plain;
pub(super) use capture::*;

// SAFETY: the globals are integers, and the generator fills the gaps between them.
unsafe impl Plain for types::bss {}
