//! Flows counted by a program, at XDP or tc, in one table per CPU, and exported when they end.

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

/// Loads one kind of program. Each kind has its own skeleton type. All maps except the tables are created with the
/// programs.
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

/// The loaded programs and their flows. Dropping it detaches the programs and discards the flows.
#[derive(Debug)]
pub struct FlowPlane {
    attached: Vec<Attachment>,
    program: OwnedFd,
    steering: Option<Steering>,
    /// No frame is in transit between CPUs, and none will be.
    drained: bool,
    tables: Tables,
    accounts: Accounts,
    clock: Map<u32, u64>,
    outlet: KernelRows,
    sweep: Sweep,
    /// `None` if the programs were loaded without models.
    models: Option<Models>,
}

impl FlowPlane {
    /// Loads the XDP programs without attaching them.
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

    /// Loads the tc programs without attaching them.
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

    /// The program that receives frames, to run it without a device.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Also counts the incoming frames of a device in the calling thread's network namespace.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), Error> {
        let attached = attach::xdp(self.program.as_fd(), ifindex, mode)
            .map_err(|error| Error::failed("attaching the flow program", error))?;
        self.attached.push(attached);
        Ok(())
    }

    /// Also counts the frames that pass one side of a device. This requires the tc programs.
    pub fn attach_tc(&mut self, ifindex: u32, side: attach::Direction) -> Result<(), Error> {
        let attached = attach::tc(self.program.as_fd(), ifindex, side, attach::tc_via())
            .map_err(|error| Error::failed("attaching the flow program", error))?;
        self.attached.push(attached);
        Ok(())
    }

    /// Updates the programs' offset of the monotonic clock from the epoch, which changes when the wall clock is
    /// adjusted.
    pub fn set_clock(&self) -> Result<(), Error> {
        clock::set(&self.clock)
    }

    /// Sleeps until flows should be collected, according to the settings. Returns whether a program caused the wake-up.
    pub fn wait(&self) -> Result<bool, Error> {
        self.outlet.wait()
    }

    /// Activates a model, or none. Returns the answers of the previous model. With `shadow`, actions are only counted,
    /// not applied. The change is atomic: each packet sees either the old or the new model.
    pub fn set_model(&mut self, image: Option<(&Image, bool)>) -> Result<Answers, Error> {
        match &mut self.models {
            Some(models) => models.put(image),
            None => Err(Error::Plan(
                "the flow programs were loaded without room for a model".into(),
            )),
        }
    }

    /// Takes the control of the model, for code that runs beside the plane.
    pub(crate) fn take_models(&mut self) -> Option<Models> {
        self.models.take()
    }

    /// The answers of the active model.
    pub fn answers(&self) -> Result<Answers, Error> {
        let models = self.models.as_ref();
        models.map_or(Ok(Answers::default()), Models::answers)
    }

    /// Exports the flows that have left the tables, except those that another CPU still counts.
    pub fn collect(&mut self, export: &mut impl FnMut(Box<Flow>)) -> Result<(), Error> {
        self.outlet.collect(&self.tables, export)
    }

    /// The number of parts from other CPUs that were merged into rows.
    pub fn merged(&self) -> u64 {
        self.outlet.merged()
    }

    /// Evicts and exports flows that have ended by the horizon, until the time budget is spent. The next call continues
    /// from there.
    pub fn sweep(
        &mut self,
        horizon_ns: i64,
        budget: Duration,
        export: &mut impl FnMut(Box<Flow>),
    ) -> Result<SweepProgress, Error> {
        let (outlet, tables) = (&mut self.outlet, &self.tables);
        // Collect after each table, before the next: the remaining entries show which flows have other parts.
        let mut collect = || outlet.collect(tables, export);
        collect()?;
        let swept = self.sweep.go_on(tables, horizon_ns, budget, &mut collect)?;
        self.outlet.settle(tables, export)?;
        Ok(swept)
    }

    /// Exports the remaining flows at the end. No packet is counted afterwards.
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

    /// Waits until all frames sent between CPUs have arrived or are lost.
    fn drain(&mut self) -> Result<(), Error> {
        if let Some(steering) = &self.steering {
            steering.drain()?;
        }
        self.drained = true;
        Ok(())
    }

    /// The account of the frames that were seen.
    pub fn account(&self) -> Result<Account, Error> {
        let mut account = account::read(&self.accounts)?;
        if self.drained {
            // Computed instead of counted, because the kernel reports only the most common reason.
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

/// The common parts of both kinds of programs.
struct Skeleton<'a, 'o> {
    /// The program that receives incoming frames.
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
    /// `None` if the programs were loaded without models.
    models: Option<Models>,
    filter: Maps,
}
