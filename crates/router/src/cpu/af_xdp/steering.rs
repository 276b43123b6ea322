//! The loaded programs and their maps: one steers frames to threads, one reinjects frames.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use bpf::{Map, PerCpu, Plain as _, Run};
use datapath::Error;
use libbpf_rs::OpenObject;
use libbpf_rs::libbpf_sys::xdp_md;
use netdev::Link;
use xsk::Port;

use super::MAX_FRAME_LEN;
use crate::policy::{Place, Restraint, code};
use crate::skel::steer::{SteerSkel, SteerSkelBuilder, types};

/// Maximum number of frames that one run reinjects.
pub(super) const MAX_REINJECT: usize = 64;

/// The program that steers frames to threads.
#[derive(Debug)]
pub(super) struct Steering {
    devices: Map<u32, types::device>,
    sockets: Map<u32, i32>,
    queues: Map<types::queue, u32>,
    /// Frames that the program has seen, that it has steered, and that it has dropped.
    counts: PerCpu<u64>,
    pub(super) local4: Map<[u8; 4], u8>,
    pub(super) local6: Map<[u8; 16], u8>,
}

/// The program that reinjects frames. It is a second instance of the object, used by one thread.
#[derive(Debug)]
pub(super) struct ReinjectProgram {
    program: OwnedFd,
    frames: Map<u32, types::given>,
    next: Map<u32, u32>,
}

fn load(storage: &mut MaybeUninit<OpenObject>) -> Result<SteerSkel<'_>, Error> {
    let builder = SteerSkelBuilder::default();
    bpf::load(builder, storage, "the steering program", |_| Ok(()))
}

impl Steering {
    /// With the program, which is attached nowhere yet.
    pub(super) fn load() -> Result<(Self, OwnedFd), Error> {
        let mut storage = MaybeUninit::uninit();
        let skel = load(&mut storage)?;
        let maps = &skel.maps;
        let steering = Self {
            devices: Map::new(&maps.devices)?,
            sockets: Map::new(&maps.sockets)?,
            queues: Map::new(&maps.queues)?,
            counts: PerCpu::new(&maps.counts)?,
            local4: Map::new(&maps.local4)?,
            local6: Map::new(&maps.local6)?,
        };
        Ok((steering, bpf::program(&skel.progs.router_steer)?))
    }

    /// Frames for this device's link-layer address are the router's, but for what is left to the kernel.
    pub(super) fn device(&self, link: &Link, restraint: &Restraint) -> Result<(), Error> {
        let policy = restraint.of(Place {
            ifindex: link.index,
            vlan: None,
        });
        let bits = policy.kernel.into_iter().chain(restraint.sole_filter);
        let device = types::device {
            mac: link.mac,
            flags: (0..)
                .zip(bits)
                .fold(0, |flags, (bit, set)| flags | u8::from(set) << bit),
            reverse_path: code(policy.reverse_path),
        };
        Ok(self.devices.set(&link.index, &device)?)
    }

    /// Frames that come in by this queue are for this socket, which is at `index` among all.
    pub(super) fn steer(&self, index: u32, port: &Port) -> Result<(), Error> {
        let queue = types::queue {
            ifindex: port.ifindex(),
            number: port.queue(),
        };
        self.sockets.set_descriptor(&index, port)?;
        Ok(self.queues.set(&queue, &index)?)
    }

    /// Frames that the program has seen, that it has steered, and that it has dropped because a rule may be about them.
    pub(super) fn counts(&self) -> Result<[u64; 3], Error> {
        let sum = |which| {
            let sum = self.counts.sum(which);
            sum.map_err(|error| {
                Error::failed("reading the steering program's counters", error.source)
            })
        };
        Ok([sum(0)?, sum(1)?, sum(2)?])
    }
}

impl ReinjectProgram {
    pub(super) fn load() -> Result<Self, Error> {
        let mut storage = MaybeUninit::uninit();
        let skel = load(&mut storage)?;
        Ok(Self {
            program: bpf::program(&skel.progs.router_give_back)?,
            frames: Map::new(&skel.maps.back)?,
            next: Map::new(&skel.maps.turn)?,
        })
    }

    /// Reinjects up to [`MAX_REINJECT`] frames, as if a device had just received them.
    pub(super) fn reinject(&self, ifindex: u32, frames: &[Vec<u8>]) -> Result<(), Error> {
        let mut slot = types::given {
            length: 0,
            frame: [0; MAX_FRAME_LEN],
        };
        for (at, frame) in (0..).zip(frames) {
            slot.frame[..frame.len()].copy_from_slice(frame);
            slot.length = u32::try_from(frame.len()).unwrap_or(0);
            self.frames.set(&at, &slot)?;
        }
        self.next.set(&0, &0)?;
        let context = xdp_md {
            data_end: u32::try_from(MAX_FRAME_LEN).unwrap_or(0),
            ingress_ifindex: ifindex,
            ..Default::default()
        };
        let run = Run {
            frame: &[0; MAX_FRAME_LEN],
            context: context.bytes(),
            repeat: frames.len().max(1) as u64,
            live: true,
            ..Default::default()
        };
        bpf::run(&self.program, &run)
            .map(drop)
            .map_err(|error| Error::failed("giving frames back to the stack", error))
    }
}
