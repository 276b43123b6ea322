//! Generated from `bpf/*.bpf.c`.
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

pub(crate) mod live {
    include!(concat!(env!("OUT_DIR"), "/live.skel.rs"));
}

pub(crate) mod far_end {
    include!(concat!(env!("OUT_DIR"), "/far_end.skel.rs"));
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use libbpf_rs::skel::{OpenSkel, SkelBuilder};

    #[test]
    fn every_program_loads() {
        if !sys::require::root() {
            return;
        }
        let mut storage = MaybeUninit::uninit();
        let mut live = super::live::LiveSkelBuilder::default()
            .open(&mut storage)
            .unwrap();
        live.maps.flows.set_max_entries(1).unwrap();
        live.load().unwrap();
        let mut storage = MaybeUninit::uninit();
        let mut far_end = super::far_end::FarEndSkelBuilder::default()
            .open(&mut storage)
            .unwrap();
        far_end.maps.counts.set_max_entries(1).unwrap();
        far_end.load().unwrap();
    }
}
