//! Flows counted by a program, in XDP or at tc, in a table for each CPU, and exported as they end.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bpf::{Map, PerCpu};
use datapath::Error;
use libbpf_rs::{MapHandle, MapMut};
use netdev::XdpMode;
use netdev::attach::{self, Attachment};
use sys::bpf_ring::Ring;

use super::account::{self, Account, Accounts};
use super::bell::Bell;
use super::clock;
use super::failed;
use super::image::Image;
use super::kernel_rows::KernelRows;
use super::models::{Answers, Models};
use super::selection::{Maps, OpenMaps};
use super::settings::Settings;
use super::skel::flow::{FlowSkel, FlowSkelBuilder, OpenFlowSkel, types};
use super::skel::flow_tc::{FlowTcSkel, FlowTcSkelBuilder, OpenFlowTcSkel};
use super::steer::{self, Steering};
use super::sweep::{Sweep, SweepProgress};
use super::tables::Tables;
use crate::flow::{End, Flow};

/// Loads one kind of programs: each has a skeleton of its own type, and all but the tables are made with
/// the programs.
macro_rules! load {
    ($builder:ident, $tell:ident, $settings:expr, $prepare:expr, $entry:expr) => {{
        $settings.check()?;
        let mut storage = MaybeUninit::uninit();
        let builder = $builder::default();
        let skel = bpf::load(builder, &mut storage, "the flow programs", |open| {
            if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
                $settings.$tell(knobs);
            }
            $prepare(open).map_err(failed("preparing the steering programs"))?;
            let filter = OpenMaps {
                steps: &mut open.maps.filter_steps,
                ports: &mut open.maps.filter_port_sets,
                networks: &mut open.maps.filter_networks,
            };
            filter
                .size(&$settings.options.selection)
                .and_then(|()| libbpf_rs::num_possible_cpus())
                .map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX))
                .and_then(|cpus| {
                    open.maps.tables.set_max_entries(cpus)?;
                    open.maps.flow_queues.set_max_entries(cpus)
                })
                .and_then(|()| open.maps.ended.set_max_entries($settings.ring_bytes))
                .map_err(failed("sizing the flow programs' maps"))
        })?;
        let maps = &skel.maps;
        let (entry, steering) = $entry(&skel)?;
        let skeleton = Skeleton {
            entry,
            evict: bpf::program(&skel.progs.evict_flows)?,
            tables: Map::new(&maps.tables)?,
            queues: Map::new(&maps.flow_queues)?,
            ended: &maps.ended,
            accounts: Accounts::new(&maps.accounts)?,
            clock: Map::new(&maps.clock)?,
            evictions: Map::new(&maps.evictions)?,
            candidates: Map::new(&maps.candidates)?,
            alarms: &maps.alarms,
            models: match $settings.models {
                true => Some(Models::new(
                    Map::new(&maps.models)?,
                    PerCpu::new(&maps.tree_accounts)?,
                )),
                false => None,
            },
            filter: Maps::new(
                &maps.filter_steps,
                &maps.filter_port_sets,
                &maps.filter_networks,
            )?,
        };
        let plane = Self::of(skeleton, $settings)?;
        Ok(Self { steering, ..plane })
    }};
}

/// The loaded programs and what they count. Dropping it detaches them and forgets their flows.
#[derive(Debug)]
pub struct FlowPlane {
    attached: Vec<Attachment>,
    program: OwnedFd,
    steering: Option<Steering>,
    /// Nothing is on its way from one CPU to another, nor will be.
    drained: bool,
    tables: Tables,
    accounts: Accounts,
    clock: Map<u32, u64>,
    outlet: KernelRows,
    sweep: Sweep,
    /// None where the programs were loaded without.
    models: Option<Models>,
}

impl FlowPlane {
    /// Loads the XDP programs, attached nowhere yet.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        let prepare = |open: &mut OpenFlowSkel<'_>| steer::prepare(open, &settings.steer);
        let entry = |skel: &FlowSkel<'_>| {
            let steering = Steering::new(skel, settings)?;
            let entry = match steering {
                Some(_) => &skel.progs.steer_frames,
                None => &skel.progs.count_flows,
            };
            Ok::<_, Error>((bpf::program(entry)?, steering))
        };
        load!(FlowSkelBuilder, tell, settings, prepare, entry)
    }

    /// Loads the programs for tc, attached nowhere yet.
    pub fn load_tc(settings: &Settings) -> Result<Self, Error> {
        let prepare = |_: &mut OpenFlowTcSkel<'_>| Ok::<_, libbpf_rs::Error>(());
        let entry = |skel: &FlowTcSkel<'_>| {
            let entry = bpf::program(&skel.progs.count_flows)?;
            Ok::<(_, Option<Steering>), Error>((entry, None))
        };
        load!(FlowTcSkelBuilder, tell_tc, settings, prepare, entry)
    }

    fn of(skeleton: Skeleton<'_, '_>, settings: &Settings) -> Result<Self, Error> {
        skeleton.filter.fill(&settings.options.selection)?;
        let ring = Ring::new(skeleton.ended.as_fd(), settings.ring_bytes)
            .map_err(|error| Error::failed("mapping the ring of ended flows", error))?;
        let alarms = MapHandle::try_from(skeleton.alarms)
            .map_err(failed("keeping a map of the flow programs"))?;
        let bell = Bell::new(settings.wakeup, &alarms, 1)?;
        bell.watch(skeleton.ended.as_fd())?;
        let plane = Self {
            attached: Vec::new(),
            program: skeleton.entry,
            steering: None,
            drained: false,
            tables: Tables::make(&skeleton.tables, &skeleton.queues, settings.flows_per_cpu)?,
            accounts: skeleton.accounts,
            clock: skeleton.clock,
            outlet: KernelRows::new(ring, bell, settings),
            models: skeleton.models,
            sweep: Sweep::new(
                settings.options.timers,
                skeleton.evict,
                skeleton.evictions,
                skeleton.candidates,
            ),
        };
        plane.set_clock()?;
        Ok(plane)
    }

    /// The program that takes frames, to run it elsewhere than on a device.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Counts the frames that come in by a device of the calling thread's namespace, too.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), Error> {
        let attached = attach::xdp(self.program.as_fd(), ifindex, mode)
            .map_err(|error| Error::failed("attaching the flow program", error))?;
        self.attached.push(attached);
        Ok(())
    }

    /// Counts the frames that pass one side of a device, too, where the programs are for tc.
    pub fn attach_tc(&mut self, ifindex: u32, side: attach::Direction) -> Result<(), Error> {
        let attached = attach::tc(self.program.as_fd(), ifindex, side, attach::tc_via())
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

    /// Puts a model in force, or none; the answers of the one before. `shadow`: nothing becomes of packets,
    /// it is only counted what would. Each packet meets the one or the other.
    pub fn set_model(&mut self, image: Option<(&Image, bool)>) -> Result<Answers, Error> {
        match &mut self.models {
            Some(models) => models.put(image),
            None => Err(Error::Plan(
                "the flow programs were loaded without room for a model".into(),
            )),
        }
    }

    /// The hand on the model, for whoever runs beside the plane.
    pub(crate) fn take_models(&mut self) -> Option<Models> {
        self.models.take()
    }

    /// The answers of the model in force.
    pub fn answers(&self) -> Result<Answers, Error> {
        let models = self.models.as_ref();
        models.map_or(Ok(Answers::default()), Models::answers)
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
    ) -> Result<SweepProgress, Error> {
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
        netdev::grace::wait()
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

/// What both kinds of programs have alike.
struct Skeleton<'a, 'o> {
    /// The program that takes frames where they come in.
    entry: OwnedFd,
    evict: OwnedFd,
    tables: Map<u32, i32>,
    queues: Map<u32, i32>,
    ended: &'a MapMut<'o>,
    accounts: Accounts,
    clock: Map<u32, u64>,
    evictions: Map<u32, types::eviction>,
    candidates: Map<u32, types::flow_key>,
    alarms: &'a MapMut<'o>,
    /// `None` where the programs were loaded without.
    models: Option<Models>,
    filter: Maps,
}
