//! The loaded program and its maps.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use datapath::Error;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput, libbpf_sys};
use netdev::Link;

use super::LONGEST;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));
/// Frames that are given back by one run.
pub(super) const GIVEN: usize = 64;
/// `struct given`.
const GIVEN_SIZE: usize = 4 + LONGEST;

#[derive(Debug)]
pub(super) struct Loaded(Object);

impl Loaded {
    pub(super) fn load() -> Result<Self, Error> {
        let open = ObjectBuilder::default()
            .name("router_af_xdp")
            .and_then(|builder| builder.open_memory(OBJECT));
        let loaded = open.and_then(libbpf_rs::OpenObject::load);
        loaded
            .map(Self)
            .map_err(failed("loading the steering program"))
    }

    pub(super) fn map(&self, name: &str) -> Result<MapHandle, Error> {
        let found = self.0.maps().find(|found| found.name() == name);
        let found =
            found.ok_or_else(|| Error::Plan(format!("the steering program has no map {name}")))?;
        MapHandle::try_from(&found).map_err(failed("keeping a map of the steering program"))
    }

    pub(super) fn program(&self, name: &str) -> Result<OwnedFd, Error> {
        let found = self.0.progs().find(|found| found.name() == name);
        let found = found.ok_or_else(|| Error::Plan(format!("no steering program {name}")))?;
        let kept = found.as_fd().try_clone_to_owned();
        kept.map_err(|error| Error::failed("keeping the steering program", error))
    }

    /// Frames for this device's link-layer address are the router's.
    pub(super) fn device(&self, link: &Link) -> Result<(), Error> {
        let mut value = [0; 8];
        value[..6].copy_from_slice(&link.mac);
        write(&self.map("devices")?, &link.index.to_ne_bytes(), &value)
    }

    /// Frames that come in by this queue are for this socket, which is at `index` among all.
    pub(super) fn steer(
        &self,
        (ifindex, queue): (u32, u32),
        index: u32,
        socket: impl AsFd,
    ) -> Result<(), Error> {
        let socket = socket.as_fd().as_raw_fd().to_ne_bytes();
        write(&self.map("sockets")?, &index.to_ne_bytes(), &socket)?;
        let queue = [ifindex.to_ne_bytes(), queue.to_ne_bytes()].concat();
        write(&self.map("queues")?, &queue, &index.to_ne_bytes())
    }

    /// Frames that the program has seen, and that it has steered.
    pub(super) fn counts(&self) -> Result<(u64, u64), Error> {
        let counts = self.map("counts")?;
        let sum = |which: u32| {
            let found = counts.lookup_percpu(&which.to_ne_bytes(), MapFlags::ANY);
            let found = found.map_err(failed("reading the steering program's counters"))?;
            let cpus = found.unwrap_or_default();
            let number =
                |value: &Vec<u8>| value.first_chunk().copied().map_or(0, u64::from_ne_bytes);
            Ok::<u64, Error>(cpus.iter().map(number).sum())
        };
        Ok((sum(0)?, sum(1)?))
    }

    /// Has the stack take these frames, at most [`GIVEN`], as if they had just come by a device.
    pub(super) fn give_back(&mut self, ifindex: u32, frames: &[Vec<u8>]) -> Result<(), Error> {
        const XDP_MD: usize = 24;
        let (back, turn) = (self.map("back")?, self.map("turn")?);
        for (at, frame) in (0_u32..).zip(frames) {
            let mut value = vec![0; GIVEN_SIZE];
            let length = u32::try_from(frame.len()).unwrap_or(0);
            value[..4].copy_from_slice(&length.to_ne_bytes());
            value[4..4 + frame.len()].copy_from_slice(frame);
            write(&back, &at.to_ne_bytes(), &value)?;
        }
        write(&turn, &[0; 4], &[0; 4])?;
        let blank = [0; LONGEST];
        let mut context = [0; XDP_MD];
        let length = u32::try_from(LONGEST).unwrap_or(0);
        context[4..8].copy_from_slice(&length.to_ne_bytes());
        context[12..16].copy_from_slice(&ifindex.to_ne_bytes());
        let found = self
            .0
            .progs_mut()
            .find(|found| found.name() == "router_give_back");
        let program =
            found.ok_or_else(|| Error::Plan("no program gives frames back".to_owned()))?;
        program
            .test_run(ProgramInput {
                context_in: Some(&mut context),
                data_in: Some(&blank),
                flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
                repeat: u32::try_from(frames.len()).unwrap_or(1),
                ..ProgramInput::default()
            })
            .map_err(failed("giving frames back to the stack"))?;
        Ok(())
    }
}

pub(super) fn write(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), Error> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|error| Error::failed(format!("writing map {}", map.name().display()), error))
}

pub(super) fn failed(what: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    move |error| Error::failed(what, error)
}
