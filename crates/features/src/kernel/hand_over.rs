//! Frames handed to AF_XDP sockets by an XDP program.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use datapath::Error;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut};
use netdev::XdpMode;
use netdev::attach::{self, Attached};

use super::account::{self, Account};
use super::clock;
use super::failed;
use super::selection::Maps;
use super::settings::Settings;
use super::skel::hand_over::HandOverSkelBuilder;

/// The loaded program. Dropping it detaches it.
#[derive(Debug)]
pub(crate) struct HandOver {
    attached: Vec<Attached>,
    program: OwnedFd,
    sockets: MapHandle,
    accounts: MapHandle,
    clock: MapHandle,
}

impl HandOver {
    /// Loads the program for a device with so many queues, attached nowhere yet.
    pub(crate) fn load(settings: &Settings, queues: u32) -> Result<Self, Error> {
        let mut storage = MaybeUninit::uninit();
        let mut open = HandOverSkelBuilder::default()
            .open(&mut storage)
            .map_err(failed("opening the handing program"))?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            settings.tell_handing(knobs);
        }
        let filter = Maps {
            steps: &mut open.maps.filter_steps,
            ports: &mut open.maps.filter_port_sets,
            networks: &mut open.maps.filter_networks,
        };
        filter
            .size(&settings.options.selection)
            .and_then(|()| open.maps.sockets.set_max_entries(queues.max(1)))
            .map_err(failed("sizing the handing program's maps"))?;
        let skel = open.load().map_err(failed("loading the handing program"))?;
        let filter = Maps {
            steps: handle(&skel.maps.filter_steps)?,
            ports: handle(&skel.maps.filter_port_sets)?,
            networks: handle(&skel.maps.filter_networks)?,
        };
        filter.fill(&settings.options.selection)?;
        let program = skel.progs.hand_over.as_fd().try_clone_to_owned();
        let handing = Self {
            attached: Vec::new(),
            program: program.map_err(|error| Error::failed("keeping the program", error))?,
            sockets: handle(&skel.maps.sockets)?,
            accounts: handle(&skel.maps.accounts)?,
            clock: handle(&skel.maps.clock)?,
        };
        handing.set_clock()?;
        Ok(handing)
    }

    /// The program, to run it elsewhere than on a device.
    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Frames that come in by this queue are for this socket.
    pub(crate) fn steer(&self, queue: u32, socket: impl AsFd) -> Result<(), Error> {
        let socket = socket.as_fd().as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &socket, MapFlags::ANY)
            .map_err(failed("steering to an AF_XDP socket"))
    }

    /// Hands over the frames of a device of the calling thread's namespace.
    pub(crate) fn attach(&mut self, ifindex: u32) -> Result<(), Error> {
        let attached = attach::xdp(self.program.as_fd(), ifindex, XdpMode::Native)
            .map_err(|error| Error::failed("attaching the handing program", error))?;
        self.attached.push(attached);
        Ok(())
    }

    /// Hands over no more; what was handed over is in its socket.
    pub(crate) fn detach(&mut self) -> Result<(), Error> {
        self.attached.clear();
        netdev::grace::wait()
            .map_err(|error| Error::failed("waiting for the handing program to end", error))
    }

    /// Tells the program what time it is, as `FlowPlane::set_clock`.
    pub(crate) fn set_clock(&self) -> Result<(), Error> {
        clock::set(&self.clock)
    }

    /// What became of the frames that were seen.
    pub(crate) fn account(&self) -> Result<Account, Error> {
        account::read(&self.accounts)
    }
}

fn handle(map: &MapMut<'_>) -> Result<MapHandle, Error> {
    MapHandle::try_from(map).map_err(failed("keeping a map of the handing program"))
}
