//! A record for each packet, from a ring for each CPU.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use datapath::Error;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use netdev::XdpMode;
use netdev::attach::{self, Attached};
use sys::bpf_ring::Ring;

use super::account::{self, Account};
use super::bell::Bell;
use super::clock;
use super::failed;
use super::memory;
use super::selection::Maps;
use super::settings::Settings;
use super::skel::Plain;
use super::skel::packets::{OpenPacketsSkel, PacketsSkel, PacketsSkelBuilder, types};
use crate::dissect::Packet;

/// The loaded program and its rings. Dropping it detaches the program.
#[derive(Debug)]
pub struct PacketPlane {
    attached: Vec<Attached>,
    program: OwnedFd,
    rings: Vec<Head>,
    accounts: MapHandle,
    clock: MapHandle,
    bell: Bell,
}

/// The ring of one CPU, and when its first packet came.
#[derive(Debug)]
struct Head {
    ring: Ring,
    time_ns: Option<i64>,
    cpu: u32,
}

impl PacketPlane {
    /// Loads the program, attached nowhere yet. `ring_bytes` is for each CPU.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        settings.check_packets()?;
        let mut storage = MaybeUninit::uninit();
        let mut open = PacketsSkelBuilder::default()
            .open(&mut storage)
            .map_err(failed("opening the packet program"))?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            settings.tell_packets(knobs);
        }
        size(&mut open, settings).map_err(failed("sizing the packet program's maps"))?;
        let skel = open.load().map_err(failed("loading the packet program"))?;
        let plane = Self::of(&skel, settings)?;
        plane.set_clock()?;
        Ok(plane)
    }

    fn of(skel: &PacketsSkel<'_>, settings: &Settings) -> Result<Self, Error> {
        let handle = |map: &libbpf_rs::MapMut<'_>| {
            MapHandle::try_from(map).map_err(failed("keeping a map of the packet program"))
        };
        let filter = Maps {
            steps: handle(&skel.maps.filter_steps)?,
            ports: handle(&skel.maps.filter_port_sets)?,
            networks: handle(&skel.maps.filter_networks)?,
        };
        filter.fill(&settings.options.selection)?;
        let outer = handle(&skel.maps.rings)?;
        let alarms = handle(&skel.maps.alarms)?;
        let count = usize::try_from(alarms.max_entries()).unwrap_or(0);
        let bell = Bell::new(settings.wakeup, &alarms, count)?;
        let topology = memory::topology()?;
        let rings = topology.cpus().into_iter().map(|cpu| {
            let node = topology.node_of(cpu);
            Head::make(&outer, cpu, node, settings.ring_bytes, &bell)
        });
        let program = skel.progs.record_packets.as_fd().try_clone_to_owned();
        Ok(Self {
            attached: Vec::new(),
            program: program.map_err(|error| Error::failed("keeping the program", error))?,
            rings: rings.collect::<Result<_, Error>>()?,
            accounts: handle(&skel.maps.accounts)?,
            clock: handle(&skel.maps.clock)?,
            bell,
        })
    }

    /// The program, to run it elsewhere than on a device.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Records the packets of a device of the calling thread's namespace, too.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), Error> {
        let attached = attach::xdp(self.program.as_fd(), ifindex, mode)
            .map_err(|error| Error::failed("attaching the packet program", error))?;
        self.attached.push(attached);
        Ok(())
    }

    /// Records no more; what is in the rings can still be read.
    pub fn detach(&mut self) -> Result<(), Error> {
        self.attached.clear();
        sys::rcu::synchronize()
            .map_err(|error| Error::failed("waiting for the packet program to end", error))
    }

    /// Tells the program what time it is, as `FlowPlane::set_clock`.
    pub fn set_clock(&self) -> Result<(), Error> {
        clock::set(&self.clock)
    }

    /// Sleeps until there is reason to collect, as the settings say; whether the program said so.
    pub fn wait(&self) -> Result<bool, Error> {
        let number = |cpu| usize::try_from(cpu).unwrap_or(usize::MAX);
        let rings = self.rings.iter();
        self.bell
            .wait(rings.map(|head| (number(head.cpu), &head.ring)))
    }

    /// Hands on the packets that came before this time, those of all CPUs in the order of their
    /// times, and those of one CPU in the order in which they came. What is younger waits in its
    /// ring, so that a packet that another CPU is just writing is not overtaken.
    pub fn collect(&mut self, before_ns: i64, mut take: impl FnMut(&Packet<'static>)) {
        self.rings.iter_mut().for_each(Head::look);
        loop {
            let heads = self.rings.iter_mut().filter(|head| head.time_ns.is_some());
            let Some(first) = heads.min_by_key(|head| head.time_ns) else {
                break;
            };
            if first.time_ns.is_none_or(|time| time >= before_ns) {
                break;
            }
            if let Some(record) = first.ring.peek().and_then(types::packet::read) {
                take(&(&record).into());
            }
            first.ring.pop();
            first.look();
        }
    }

    /// What became of the frames that were seen.
    pub fn account(&self) -> Result<Account, Error> {
        account::read(&self.accounts)
    }
}

/// Sizes the maps, of which all but the rings are made with the program.
fn size(open: &mut OpenPacketsSkel<'_>, settings: &Settings) -> libbpf_rs::Result<()> {
    let maps = Maps {
        steps: &mut open.maps.filter_steps,
        ports: &mut open.maps.filter_port_sets,
        networks: &mut open.maps.filter_networks,
    };
    maps.size(&settings.options.selection)?;
    let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(u32::MAX);
    open.maps.rings.set_max_entries(cpus)?;
    open.maps.alarms.set_max_entries(cpus)
}

impl Head {
    fn make(
        outer: &MapHandle,
        cpu: u32,
        node: u32,
        bytes: u32,
        bell: &Bell,
    ) -> Result<Self, Error> {
        let refused = |error| Error::failed(format!("making CPU {cpu}'s ring"), error);
        let options = memory::on(node);
        let map = MapHandle::create(MapType::RingBuf, Some("packet_ring"), 0, 0, bytes, &options)
            .map_err(refused)?;
        let fd = map.as_fd().as_raw_fd().to_ne_bytes();
        outer
            .update(&cpu.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(refused)?;
        let ring = Ring::new(map.as_fd(), bytes)
            .map_err(|error| Error::failed(format!("mapping CPU {cpu}'s ring"), error))?;
        bell.watch(map.as_fd())?;
        Ok(Self {
            ring,
            time_ns: None,
            cpu,
        })
    }

    fn look(&mut self) {
        let record = self.ring.peek().and_then(types::packet::read);
        self.time_ns = record.map(|record| record.time_ns);
    }
}
