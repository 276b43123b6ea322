//! Generated from `bpf/*.bpf.c`.

bpf::skeleton!(pub(crate) mod live = "live");
bpf::skeleton!(pub(crate) mod far_end = "far_end");

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
