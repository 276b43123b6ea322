//! A disturbance of known size between the probes, for checking them.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use netdev::attach::{self, Attachment, Direction};
use netdev::requirement;

use crate::Error;
use crate::delay::{Point, REQUIREMENTS};

bpf::skeleton!(mod skel = "disturb");

/// The disturbance of our packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Each is held up this long, in nanoseconds (at most 1 ms).
    Delay(u32),
    /// Each whose sequence number is a multiple of this is lost.
    LoseEvery(u32),
}

/// An attached disturbance. Dropping it detaches it.
#[derive(Debug)]
pub struct DisturbanceLink(#[expect(dead_code, reason = "held for its drop")] Attachment);

impl DisturbanceLink {
    /// Disturbs packets that arrive at `point`, before every tc program attached later.
    ///
    /// # Errors
    /// [`Error::Missing`] without the privileges, and whatever the kernel refuses.
    pub fn attach(point: &Point, disturbance: Disturbance) -> Result<Self, Error> {
        requirement::check(REQUIREMENTS)?;
        let mut storage = MaybeUninit::uninit();
        let builder = skel::DisturbSkelBuilder::default();
        let skel = bpf::load(builder, &mut storage, "the disturbance", |open| {
            if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
                match disturbance {
                    Disturbance::Delay(ns) => knobs.delay_ns = ns.min(1_000_000),
                    Disturbance::LoseEvery(packets) => knobs.lose_every = packets,
                }
            }
            Ok::<_, Error>(())
        })?;
        let program = skel.progs.disturb.as_fd();
        let attach = || attach::tc(program, point.ifindex, Direction::Ingress, attach::tc_via());
        Ok(Self(point.namespace.run(attach)??))
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::skel::{OpenSkel, SkelBuilder};

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
