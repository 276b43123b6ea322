//! The program that chooses a socket of a group for each frame.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use datapath::Error;

use super::skel::fanout::FanoutSkelBuilder;

/// Loads it; for frames that begin with their IP header where they are `raw`, and, where inner flows
/// are told apart, by nothing but the outer addresses.
pub(crate) fn chooser(raw: bool, by_addresses: bool) -> Result<OwnedFd, Error> {
    let mut storage = MaybeUninit::uninit();
    let builder = FanoutSkelBuilder::default();
    let skel = bpf::load(builder, &mut storage, "the fanout program", |open| {
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.raw_frames = u8::from(raw);
            knobs.by_addresses = u8::from(by_addresses);
        }
        Ok::<_, Error>(())
    })?;
    Ok(bpf::program(&skel.progs.choose_socket)?)
}
