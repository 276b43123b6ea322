//! The program that selects a socket of a group for each frame.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use datapath::Error;

use super::skel::fanout::FanoutSkelBuilder;
use crate::dissect::Tunnels;
use crate::options::Options;

/// Loads the program. With `raw`, frames begin with their IP header. Frames of tunnels are assigned by their outer
/// addresses, even if the inner flows are distinguished.
pub(crate) fn chooser(raw: bool, options: &Options) -> Result<OwnedFd, Error> {
    let mut storage = MaybeUninit::uninit();
    let builder = FanoutSkelBuilder::default();
    let skel = bpf::load(builder, &mut storage, "the fanout program", |open| {
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.raw_frames = u8::from(raw);
            knobs.by_addresses = u8::from(options.tunnels == Tunnels::Inner);
            knobs.ignore_icmp_id = u8::from(options.ignore_icmp_id);
        }
        Ok::<_, Error>(())
    })?;
    Ok(bpf::program(&skel.progs.choose_socket)?)
}
