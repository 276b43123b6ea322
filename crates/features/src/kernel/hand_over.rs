//! Redirects frames to AF_XDP sockets with an XDP program.

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
    /// Loads the program for a device with this number of queues, without attaching it.
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

    /// The program, to run it without a device.
    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Redirects the frames of this queue to this socket.
    pub(crate) fn steer(&self, queue: u32, socket: impl AsFd) -> Result<(), Error> {
        self.sockets
            .set_descriptor(&queue, socket)
            .map_err(failed("steering to an AF_XDP socket"))
    }

    /// Starts redirecting the frames of a device in the calling thread's network namespace.
    pub(crate) fn attach(&mut self, ifindex: u32) -> Result<(), Error> {
        let attached = attach::xdp(self.program.as_fd(), ifindex, XdpMode::Native)
            .map_err(|error| Error::failed("attaching the handing program", error))?;
        self.attached.push(attached);
        Ok(())
    }

    /// Stops redirecting. Frames redirected before are in their sockets.
    pub(crate) fn detach(&mut self) -> Result<(), Error> {
        self.attached.clear();
        netdev::grace::wait()
            .map_err(|error| Error::failed("waiting for the handing program to end", error))
    }

    /// Updates the clock offset, like `FlowPlane::set_clock`.
    pub(crate) fn set_clock(&self) -> Result<(), Error> {
        clock::set(&self.clock)
    }

    /// The account of the frames that were seen.
    pub(crate) fn account(&self) -> Result<Account, Error> {
        account::read(&self.accounts)
    }
}
