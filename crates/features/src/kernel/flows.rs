//! Flows counted by an XDP program in a table for each CPU, and exported as they end.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use datapath::Error;
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use netdev::XdpMode;
use netdev::attach::{self, Attached};
use sys::bpf_ring::Ring;

use super::account::{self, Account};
use super::bell::Bell;
use super::clock;
use super::failed;
use super::outlet::Outlet;
use super::selection::Maps;
use super::settings::Settings;
use super::skel::flow::{FlowSkel, FlowSkelBuilder, OpenFlowSkel};
use super::steer::{self, Steering};
use super::sweep::{Sweep, Swept};
use super::tables::Tables;
use crate::flow::{End, Flow};

/// The loaded programs and what they count. Dropping it detaches them and forgets their flows.
#[derive(Debug)]
pub struct FlowPlane {
    attached: Vec<Attached>,
    program: OwnedFd,
    steering: Option<Steering>,
    /// Nothing is on its way from one CPU to another, nor will be.
    drained: bool,
    tables: Tables,
    accounts: MapHandle,
    clock: MapHandle,
    outlet: Outlet,
    sweep: Sweep,
}

impl FlowPlane {
    /// Loads the programs, attached nowhere yet.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        settings.check()?;
        let mut storage = MaybeUninit::uninit();
        let mut open = FlowSkelBuilder::default()
            .open(&mut storage)
            .map_err(failed("opening the flow programs"))?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            settings.tell(knobs);
        }
        size(&mut open, settings).map_err(failed("sizing the flow programs' maps"))?;
        let skel = open.load().map_err(failed("loading the flow programs"))?;
        let plane = Self::of(&skel, settings)?;
        plane.set_clock()?;
        Ok(plane)
    }

    fn of(skel: &FlowSkel<'_>, settings: &Settings) -> Result<Self, Error> {
        let program = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .map_err(|error| Error::failed("keeping a flow program", error))
        };
        let filter = Maps {
            steps: handle(&skel.maps.filter_steps)?,
            ports: handle(&skel.maps.filter_port_sets)?,
            networks: handle(&skel.maps.filter_networks)?,
        };
        filter.fill(&settings.options.selection)?;
        let tables = Tables::make(&handle(&skel.maps.tables)?, settings.flows_per_cpu)?;
        let ring = Ring::new(skel.maps.ended.as_fd(), settings.ring_bytes)
            .map_err(|error| Error::failed("mapping the ring of ended flows", error))?;
        let bell = Bell::new(settings.wakeup, &handle(&skel.maps.alarms)?, 1)?;
        bell.watch(skel.maps.ended.as_fd())?;
        let steers = !settings.steer.is_empty();
        let first = if steers {
            skel.progs.steer_frames.as_fd()
        } else {
            skel.progs.count_flows.as_fd()
        };
        let steering = steers.then(|| Steering::new(skel, settings));
        Ok(Self {
            attached: Vec::new(),
            program: program(first)?,
            steering: steering.transpose()?,
            drained: false,
            tables,
            accounts: handle(&skel.maps.accounts)?,
            clock: handle(&skel.maps.clock)?,
            outlet: Outlet::new(ring, bell, settings),
            sweep: Sweep::new(
                settings.options.timers,
                program(skel.progs.evict_flows.as_fd())?,
                handle(&skel.maps.evictions)?,
                handle(&skel.maps.candidates)?,
            ),
        })
    }

    /// The program that takes frames, to run it elsewhere than on a device.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Counts the frames of a device of the calling thread's namespace, too.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), Error> {
        let attached = attach::xdp(self.program.as_fd(), ifindex, mode)
            .map_err(|error| Error::failed("attaching the flow program", error))?;
        self.attached.push(attached);
        Ok(())
    }

    /// Tells the programs what time it is: the monotonic clock's distance to the epoch changes as
    /// the latter is adjusted.
    pub fn set_clock(&self) -> Result<(), Error> {
        clock::set(&self.clock)
    }

    /// Sleeps until there is reason to collect, as the settings say; whether the program said so.
    pub fn wait(&self) -> Result<bool, Error> {
        self.outlet.wait()
    }

    /// Exports the flows that have left the tables, but for those that another CPU goes on with.
    pub fn collect(&mut self, export: &mut impl FnMut(Box<Flow>)) -> Result<(), Error> {
        self.outlet.collect(&self.tables, export)
    }

    /// Rows that were made of parts of several CPUs, once for each part more.
    pub fn merged(&self) -> u64 {
        self.outlet.merged()
    }

    /// Takes out and exports flows that have ended by the horizon, for as long as the budget lasts; the
    /// next call goes on where this one has stopped.
    pub fn sweep(
        &mut self,
        horizon_ns: i64,
        budget: Duration,
        export: &mut impl FnMut(Box<Flow>),
    ) -> Result<Swept, Error> {
        let (outlet, tables) = (&mut self.outlet, &self.tables);
        // After each table, before the next: what is still there says which flows have other parts.
        let mut collect = || outlet.collect(tables, export);
        collect()?;
        let swept = self.sweep.go_on(tables, horizon_ns, budget, &mut collect)?;
        self.outlet.settle(tables, export)?;
        Ok(swept)
    }

    /// Exports what is left, at the end: no packet is counted afterwards.
    pub fn finish(&mut self, export: &mut impl FnMut(Box<Flow>)) -> Result<(), Error> {
        self.attached.clear();
        sys::rcu::synchronize()
            .map_err(|error| Error::failed("waiting for the flow programs to end", error))?;
        self.drain()?;
        self.collect(export)?;
        let outlet = &mut self.outlet;
        self.tables.each(&mut |record| {
            let mut flow = Flow::from(record);
            flow.end = End::Stopped;
            outlet.last(flow, export);
        })?;
        self.tables.forget();
        self.outlet.settle(&self.tables, export)
    }

    /// Waits until what was sent from CPU to CPU has arrived or is lost.
    fn drain(&mut self) -> Result<(), Error> {
        if let Some(steering) = &self.steering {
            steering.drain()?;
        }
        self.drained = true;
        Ok(())
    }

    /// What became of the frames that were seen.
    pub fn account(&self) -> Result<Account, Error> {
        let mut account = account::read(&self.accounts)?;
        if self.drained {
            // Whatever the reason was: the kernel tells of the usual one only.
            account.lost_queue_full = account.sent.saturating_sub(account.arrived);
        }
        Ok(account)
    }

    /// Packets in flows that have not left the tables.
    pub fn open_packets(&self) -> Result<u64, Error> {
        let mut packets = 0;
        self.tables
            .each(&mut |record| packets += Flow::from(record).packets())?;
        Ok(packets)
    }
}

/// Sizes the maps, of which all but the tables are made with the programs.
fn size(open: &mut OpenFlowSkel<'_>, settings: &Settings) -> libbpf_rs::Result<()> {
    let maps = Maps {
        steps: &mut open.maps.filter_steps,
        ports: &mut open.maps.filter_port_sets,
        networks: &mut open.maps.filter_networks,
    };
    maps.size(&settings.options.selection)?;
    steer::prepare(open, &settings.steer)?;
    let cpus = libbpf_rs::num_possible_cpus()?;
    open.maps
        .tables
        .set_max_entries(u32::try_from(cpus).unwrap_or(u32::MAX))?;
    open.maps.ended.set_max_entries(settings.ring_bytes)
}

fn handle(map: &libbpf_rs::MapMut<'_>) -> Result<MapHandle, Error> {
    MapHandle::try_from(map).map_err(failed("keeping a map of the flow programs"))
}
