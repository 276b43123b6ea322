//! Frames handed to AF_XDP sockets by an XDP program.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bpf::Map;
use datapath::Error;
use netdev::XdpMode;
use netdev::attach::{self, Attachment};

use super::account::{self, Account, Accounts};
use super::clock;
use super::failed;
use super::selection::{Maps, OpenMaps};
use super::settings::Settings;
use super::skel::hand_over::HandOverSkelBuilder;

/// The loaded program. Dropping it detaches it.
#[derive(Debug)]
pub(crate) struct HandOver {
    attached: Vec<Attachment>,
    program: OwnedFd,
    sockets: Map<u32, i32>,
    accounts: Accounts,
    clock: Map<u32, u64>,
}

impl HandOver {
    /// Loads the program for a device with so many queues, attached nowhere yet.
    pub(crate) fn load(settings: &Settings, queues: u32) -> Result<Self, Error> {
        let mut storage = MaybeUninit::uninit();
        let builder = HandOverSkelBuilder::default();
        let skel = bpf::load(builder, &mut storage, "the handing program", |open| {
            if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
                settings.tell_handing(knobs);
            }
            let filter = OpenMaps {
                steps: &mut open.maps.filter_steps,
                ports: &mut open.maps.filter_port_sets,
                networks: &mut open.maps.filter_networks,
            };
            filter
                .size(&settings.options.selection)
                .and_then(|()| open.maps.sockets.set_max_entries(queues.max(1)))
                .map_err(failed("sizing the handing program's maps"))
        })?;
        let maps = &skel.maps;
        let filter = Maps::new(
            &maps.filter_steps,
            &maps.filter_port_sets,
            &maps.filter_networks,
        )?;
        filter.fill(&settings.options.selection)?;
        let handing = Self {
            attached: Vec::new(),
            program: bpf::program(&skel.progs.hand_over)?,
            sockets: Map::new(&maps.sockets)?,
            accounts: Accounts::new(&maps.accounts)?,
            clock: Map::new(&maps.clock)?,
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
        self.sockets
            .set_descriptor(&queue, socket)
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
