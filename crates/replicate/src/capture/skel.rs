//! Generated from `bpf/capture.bpf.c`, and what the programs write, read as the structures they are.
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

include!(concat!(env!("OUT_DIR"), "/capture.skel.rs"));

/// A structure of integers and arrays of them, without gaps: any bytes are one.
///
/// # Safety
/// The generated structure must be that.
pub(super) unsafe trait Plain: Copy {
    /// The structure that these bytes start with, and the rest; none where they are too few.
    fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (start, rest) = bytes.split_at_checked(size_of::<Self>())?;
        // SAFETY: there are as many bytes, any of them make one, and no alignment is asked for.
        Some((
            unsafe { start.as_ptr().cast::<Self>().read_unaligned() },
            rest,
        ))
    }
}

// SAFETY: the BPF header asserts that these have no implicit padding.
unsafe impl Plain for types::event {}
unsafe impl Plain for types::state {}
unsafe impl Plain for types::file_key {}
unsafe impl Plain for types::bss {}
