//! The `xdp-ringbuf` datapath: the kernel parses headers and records each packet, and userspace keeps the flows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datapath::{Datapath, Error, Missing};
use netdev::XdpMode;
use netdev::requirement;
use sys::capture::Promiscuous;

use super::kernel::{self, Hook};
use super::worker::{Capturing, Workers, now_ns};
use super::{Features, LiveCounters, Plan, Running, half_the_cpus};
use crate::kernel::{Account, PacketPlane, PacketRings, Settings, Wakeup};
use crate::pipeline::{FlowPipeline, Stage as _};

/// A packet younger than this may have a predecessor that another CPU is still writing.
const YOUNG_NS: i64 = 1_000_000;
/// The smallest ring that the kernel creates on any architecture.
const MIN_RING: u32 = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct XdpRingbuf;

impl Datapath<Features> for XdpRingbuf {
    fn name(&self) -> &'static str {
        "xdp-ringbuf"
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(kernel::REQUIREMENTS)
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        plan.without_model(self.name())?;
        super::does_not_steer(self.name(), plan)?;
        let settings = kernel::settings(self.name(), Hook::Xdp, plan)?;
        let workers = plan.workers(half_the_cpus());
        let readers = u32::try_from(workers).unwrap_or(u32::MAX);
        let settings = Settings {
            readers,
            // Together the rings have the memory of one ring, or up to twice as much.
            ring_bytes: (settings.ring_bytes / readers)
                .next_power_of_two()
                .max(MIN_RING),
            ..settings
        };
        let promiscuous = kernel::promiscuous(plan)?;
        let (mut plane, rings) = PacketPlane::load(&settings)?;
        plane.attach(plan.ifindex, XdpMode::Native)?;
        let shared = Arc::new(Shared {
            plane: Mutex::new(plane),
            exported: AtomicU64::new(0),
            _promiscuous: promiscuous,
        });
        let options = plan.part(workers);
        let records = rings.into_iter().enumerate().map(|(index, rings)| Records {
            shared: Arc::clone(&shared),
            rings,
            pipeline: FlowPipeline::new(plan.schema, &options, (plan.sink)()),
            tells: index == 0,
            exported: 0,
            account: Account::default(),
            young_ns: match plan.wakeup {
                Wakeup::Every => 0,
                Wakeup::Adaptive | Wakeup::Timer(_) => YOUNG_NS,
            },
        });
        Workers::start(self.name(), plan.ifindex, records.collect())
    }
}

/// State shared by the workers.
#[derive(Debug)]
struct Shared {
    plane: Mutex<PacketPlane>,
    /// Packets in rows, summed over all workers.
    exported: AtomicU64,
    _promiscuous: Option<Promiscuous>,
}

impl Shared {
    fn plane(&self) -> MutexGuard<'_, PacketPlane> {
        self.plane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's share of the flows.
#[derive(Debug)]
struct Records {
    shared: Arc<Shared>,
    rings: PacketRings,
    pipeline: FlowPipeline,
    /// Whether this worker reports the kernel's counters, which belong to no single worker.
    tells: bool,
    /// Packets in rows that this worker has added to the shared sum.
    exported: u64,
    /// The account when it was last read.
    account: Account,
    /// Packets younger than this stay in their rings.
    young_ns: i64,
}

impl Records {
    fn collect(&mut self, before_ns: i64) {
        let pipeline = &mut self.pipeline;
        self.rings
            .collect(before_ns, |packet| pipeline.packet(packet));
    }
}

impl Capturing for Records {
    fn take(&mut self) -> Result<bool, String> {
        self.rings.wait().map_err(|error| error.to_string())?;
        self.collect(now_ns() - self.young_ns);
        Ok(false)
    }

    fn tick(&mut self, now_ns: i64) -> Result<(), String> {
        self.pipeline.sweep(now_ns);
        self.pipeline.flush();
        if !self.tells {
            return Ok(());
        }
        let set = self.shared.plane().set_clock();
        set.map_err(|error| error.to_string())
    }

    fn counters(&mut self) -> Result<LiveCounters, String> {
        let exported = self.pipeline.exported();
        let news = exported.packets - std::mem::replace(&mut self.exported, exported.packets);
        let before = self.shared.exported.fetch_add(news, Ordering::Relaxed);
        if self.tells {
            let account = self.shared.plane().account();
            self.account = account.map_err(|error| error.to_string())?;
        }
        let mut counters = kernel::counters(&self.account, exported, self.pipeline.rows());
        let others = before + news - exported.packets;
        counters.account.open = counters.account.open.saturating_sub(others);
        Ok(counters)
    }

    fn finish(mut self) -> (LiveCounters, Result<(), String>) {
        let detached = self.shared.plane().detach();
        self.collect(i64::MAX);
        let account = detached.and_then(|()| match self.tells {
            true => self.shared.plane().account(),
            false => Ok(self.account),
        });
        kernel::finish(account, &self.account, self.pipeline.finish())
    }
}
