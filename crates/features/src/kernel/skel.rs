//! Generated from `bpf/*.bpf.c`, and what the programs write, read as the structures they are.
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

pub(crate) mod fanout {
    include!(concat!(env!("OUT_DIR"), "/fanout.skel.rs"));
}

pub(crate) mod flow {
    include!(concat!(env!("OUT_DIR"), "/flow.skel.rs"));
}

pub(crate) mod flow_tc {
    include!(concat!(env!("OUT_DIR"), "/flow_tc.skel.rs"));
}

pub(crate) mod hand_over {
    include!(concat!(env!("OUT_DIR"), "/hand_over.skel.rs"));
}

pub(crate) mod packets {
    include!(concat!(env!("OUT_DIR"), "/packets.skel.rs"));
}

use flow::types;

/// A structure of integers and arrays of them, without gaps: any bytes are one, and it is any bytes.
///
/// # Safety
/// The generated structure must be that.
pub(crate) unsafe trait Plain: Copy {
    /// The structure in these bytes; none where they are not as many as it has.
    fn read(bytes: &[u8]) -> Option<Self> {
        // SAFETY: there are as many bytes, any of them make one, and no alignment is asked for.
        (bytes.len() == size_of::<Self>())
            .then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: it is so long, has no gaps, and lives as long as the slice.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

// SAFETY: the BPF headers assert that these have no implicit padding.
unsafe impl Plain for types::flow {}
unsafe impl Plain for types::flow_key {}
unsafe impl Plain for types::account {}
unsafe impl Plain for types::eviction {}
unsafe impl Plain for types::steering {}
unsafe impl Plain for types::filter_step {}
unsafe impl Plain for types::filter_network {}
unsafe impl Plain for types::model_head {}
unsafe impl Plain for types::tree {}
unsafe impl Plain for types::tree_node {}
unsafe impl Plain for types::tree_account {}
unsafe impl Plain for packets::types::packet {}
