//! Records each packet, in one ring per CPU.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bpf::Map;
use datapath::Error;
use libbpf_rs::MapHandle;
use netdev::XdpMode;
use netdev::attach::{self, Attachment};

use super::account::{self, Account, Accounts};
use super::clock;
use super::failed;
use super::rings::PacketRings;
use super::selection::{Maps, OpenMaps};
use super::settings::Settings;
use super::skel::packets::{OpenPacketsSkel, PacketsSkel, PacketsSkelBuilder};

/// The loaded program. Dropping it detaches it.
#[derive(Debug)]
pub struct PacketPlane {
    attached: Vec<Attachment>,
    program: OwnedFd,
    accounts: Accounts,
    clock: Map<u32, u64>,
}

impl PacketPlane {
    /// Loads the program without attaching it, and creates the rings of each reader.
    pub fn load(settings: &Settings) -> Result<(Self, Vec<PacketRings>), Error> {
        settings.check_packets()?;
        let mut storage = MaybeUninit::uninit();
        let builder = PacketsSkelBuilder::default();
        let skel = bpf::load(builder, &mut storage, "the packet program", |open| {
            if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
                settings.tell_packets(knobs);
            }
            size(open, settings).map_err(failed("sizing the packet program's maps"))
        })?;
        let plane = Self::of(&skel, settings)?;
        plane.set_clock()?;
        let outer = Map::new(&skel.maps.rings)?;
        let alarms = MapHandle::try_from(&skel.maps.alarms)
            .map_err(failed("keeping a map of the packet program"))?;
        let readers = 0..settings.readers;
        let rings = readers.map(|reader| PacketRings::make(reader, settings, &outer, &alarms));
        Ok((plane, rings.collect::<Result<_, Error>>()?))
    }

    fn of(skel: &PacketsSkel<'_>, settings: &Settings) -> Result<Self, Error> {
        let maps = &skel.maps;
        let filter = Maps::new(
            &maps.filter_steps,
            &maps.filter_port_sets,
            &maps.filter_networks,
        )?;
        filter.fill(&settings.options.selection)?;
        Ok(Self {
            attached: Vec::new(),
            program: bpf::program(&skel.progs.record_packets)?,
            accounts: Accounts::new(&maps.accounts)?,
            clock: Map::new(&maps.clock)?,
        })
    }

    /// The program, to run it without a device.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Also records the packets of a device in the calling thread's network namespace.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), Error> {
        let attached = attach::xdp(self.program.as_fd(), ifindex, mode)
            .map_err(|error| Error::failed("attaching the packet program", error))?;
        self.attached.push(attached);
        Ok(())
    }

    /// Stops recording. The records in the rings can still be read.
    pub fn detach(&mut self) -> Result<(), Error> {
        if self.attached.is_empty() {
            return Ok(());
        }
        self.attached.clear();
        netdev::grace::wait()
            .map_err(|error| Error::failed("waiting for the packet program to end", error))
    }

    /// Updates the clock offset, like `FlowPlane::set_clock`.
    pub fn set_clock(&self) -> Result<(), Error> {
        clock::set(&self.clock)
    }

    /// The account of the frames that were seen.
    pub fn account(&self) -> Result<Account, Error> {
        account::read(&self.accounts)
    }
}

/// Sizes the maps. All of them except the rings are created with the program.
fn size(open: &mut OpenPacketsSkel<'_>, settings: &Settings) -> libbpf_rs::Result<()> {
    let maps = OpenMaps {
        steps: &mut open.maps.filter_steps,
        ports: &mut open.maps.filter_port_sets,
        networks: &mut open.maps.filter_networks,
    };
    maps.size(&settings.options.selection)?;
    let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(u32::MAX);
    let rings = cpus.saturating_mul(settings.readers);
    open.maps.rings.set_max_entries(rings)?;
    open.maps.alarms.set_max_entries(rings)
}
