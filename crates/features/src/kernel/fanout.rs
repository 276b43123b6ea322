//! The program that chooses a socket of a group for each frame.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use datapath::Error;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::failed;
use super::skel::fanout::FanoutSkelBuilder;

/// Loads it; for frames that begin with their IP header where they are `raw`, and, where inner flows
/// are told apart, by nothing but the outer addresses.
pub(crate) fn chooser(raw: bool, by_addresses: bool) -> Result<OwnedFd, Error> {
    let mut storage = MaybeUninit::uninit();
    let mut open = FanoutSkelBuilder::default()
        .open(&mut storage)
        .map_err(failed("opening the fanout program"))?;
    if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
        knobs.raw_frames = u8::from(raw);
        knobs.by_addresses = u8::from(by_addresses);
    }
    let skel = open.load().map_err(failed("loading the fanout program"))?;
    let program = skel.progs.choose_socket.as_fd().try_clone_to_owned();
    program.map_err(|error| Error::failed("keeping the fanout program", error))
}
