//! A disturbance of known size between the probes, for checking them.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use netdev::attach::{self, Attached, Direction};

use crate::Error;
use crate::delay::Point;
use crate::error::check_privileges;

bpf::skeleton!(mod skel = "disturb");

/// What happens to packets of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Each is held up this long, in nanoseconds (at most 1 ms).
    Delay(u32),
    /// Each whose sequence number is a multiple of this is lost.
    LoseEvery(u32),
}

/// An attached disturbance. Dropping it detaches it.
#[derive(Debug)]
pub struct Disturb(#[expect(dead_code, reason = "held for its drop")] Attached);

impl Disturb {
    /// Disturbs packets that arrive at `point`, before every tc program attached later.
    ///
    /// # Errors
    /// [`Error::Missing`] without the privileges, and whatever the kernel refuses.
    pub fn attach(point: &Point, disturbance: Disturbance) -> Result<Self, Error> {
        check_privileges()?;
        let mut storage = MaybeUninit::uninit();
        let mut open = skel::DisturbSkelBuilder::default()
            .open(&mut storage)
            .map_err(Error::bpf("opening the disturbance"))?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            match disturbance {
                Disturbance::Delay(ns) => knobs.delay_ns = ns.min(1_000_000),
                Disturbance::LoseEvery(packets) => knobs.lose_every = packets,
            }
        }
        let skel = open.load().map_err(Error::bpf("loading the disturbance"))?;
        let program = skel.progs.disturb.as_fd();
        let attach = || attach::tc(program, point.ifindex, Direction::Ingress, attach::tc_via());
        Ok(Self(point.namespace.run(attach)??))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_loads() {
        if !sys::require::root() {
            return;
        }
        let mut storage = MaybeUninit::uninit();
        let open = skel::DisturbSkelBuilder::default().open(&mut storage);
        open.unwrap().load().unwrap();
    }
}
