//! The `af-xdp` datapath: the driver hands datagrams to a thread in shared memory, which makes the
//! copies and hands them to the drivers that send them. The network stack sees neither.
//!
//! What is a stream's and may be relayed is decided, and counted, by bpf/steer.bpf.c with the
//! tables of the other fast paths. The thread sleeps while nothing arrives.

mod copies;
mod engine;
mod headers;
mod steering;
mod tag;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;

use datapath::{Datapath, Detachment, Error, Missing};
use libbpf_rs::MapHandle;
use netdev::requirement::{self, Requirement};
use netdev::{Attachments, Hook, Link, Netlink, XdpMode};
use nix::sys::epoll::{Epoll, EpollCreateFlags};

use crate::counters::{Counters, DropReason};
use crate::handover::{FastPath, ForwardingPath};
use crate::kernel::skel::steer::SteerSkelBuilder;
use crate::kernel::{self, Tables, interfaces};
use crate::plan::{Plan, StreamId, SubscriberId};
use crate::{Relay, Running};
use engine::Engine;
use steering::{Steering, look};
use worker::Worker;

const NAME: &str = "af-xdp";
/// A device that goes away may keep frames that it was sending. With more of them lost, the datapath starts again.
const MAX_LOST_FRAMES: usize = 2048;

/// The datapath; in copy mode, which every driver has.
#[derive(Clone, Copy, Debug)]
pub struct AfXdp;

impl Datapath<Relay> for AfXdp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(&[kernel::CAPABILITIES, Requirement::AfXdp])
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        let mut storage = MaybeUninit::uninit();
        let skel = kernel::load(SteerSkelBuilder::default(), &mut storage, NAME)?;
        let sleep = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map(Arc::new)
            .map_err(|error| Error::failed("epoll", error))?;
        let engine = Engine::new(Steering::new(&skel, Arc::clone(&sleep))?)?;
        let steered = AfXdpPath {
            worker: Worker::start(engine, sleep, plan.cpus.first().copied())?,
            tables: Tables::new(kernel::maps!(skel), None, look)?,
        };
        let ingress = bpf::program(&skel.progs.relay_ingress)?;
        let mut running = RunningAfXdp {
            attached: Attachments::new(ingress, Hook::Xdp(XdpMode::Native)),
            steered: Arc::new(steered),
        };
        running.apply(plan)?;
        Ok(Box::new(running))
    }
}

#[derive(Debug)]
struct RunningAfXdp {
    /// First, so that it is dropped first: no frame is steered to sockets that are going.
    attached: Attachments,
    steered: Arc<AfXdpPath>,
}

impl RunningAfXdp {
    /// The thread knows streams before the program steers them, and until it no longer does.
    fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let plan = interfaces::resolved(plan)?;
        let links = links()?;
        let steered = &self.steered;
        let refused = steered.worker.with(|engine| engine.admit(&plan, &links));
        steered.tables.apply(&plan, &refused)?;
        kernel::attach(&mut self.attached, &steered.tables, &plan)?;
        if steered.worker.with(|engine| engine.has_others(&plan)) {
            steered.drain()?;
            steered.worker.with(|engine| engine.retire(&plan));
        }
        Ok(())
    }
}

impl datapath::Running<Relay> for RunningAfXdp {
    fn reconfigure(&mut self, plan: &Plan) -> Result<(), Error> {
        self.apply(plan)
    }

    fn counters(&self) -> Counters {
        self.steered.counters(DrainState::Running)
    }

    fn failed(&self) -> Option<String> {
        if self.steered.worker.is_dead() {
            return Some("the af-xdp thread has ended".into());
        }
        let lost = self.steered.worker.with(|engine| engine.lost_frames());
        (lost > MAX_LOST_FRAMES)
            .then(|| format!("{lost} frames were lost with devices that are gone"))
    }

    fn reattach(&mut self) -> Vec<Detachment> {
        self.attached.reattach()
    }

    fn detachments(&self) -> Vec<Detachment> {
        self.attached.detachments()
    }

    fn fast_path(&self) -> Option<Arc<dyn FastPath>> {
        Some(Arc::clone(&self.steered) as Arc<dyn FastPath>)
    }

    fn stop(mut self: Box<Self>) -> Counters {
        self.attached.clear();
        match self.steered.drain() {
            Ok(()) => {
                self.steered.worker.with(Engine::finish);
                self.steered.counters(DrainState::Drained)
            }
            Err(error) => {
                tracing::warn!(%error, "datagrams on their way are counted as forwarded");
                self.steered.counters(DrainState::Running)
            }
        }
    }
}

/// The program's tables and the thread behind them.
#[derive(Debug)]
struct AfXdpPath {
    tables: Tables,
    worker: Worker,
}

/// Whether datagrams may be on their way between program and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainState {
    Running,
    Drained,
}

impl AfXdpPath {
    /// Returns once everything that was steered before is sent.
    fn drain(&self) -> Result<(), Error> {
        kernel::grace()?;
        self.worker.with(Engine::drain);
        Ok(())
    }

    /// The program counts what it steers as forwarded. What the thread did not see of that was
    /// lost on its way, or is on its way: the sockets say how much was lost at most.
    fn counters(&self, drain_state: DrainState) -> Counters {
        let seen: Vec<_> = self.worker.with(|engine| {
            let streams = 0..crate::plan::MAX_STREAMS;
            streams.map(|stream| engine.seen(stream)).collect()
        });
        let mut counters = self.tables.counters();
        for (id, stream) in &mut counters.streams {
            let (seen, lost) = seen.get(*id as usize).copied().unwrap_or_default();
            let unseen = stream.forwarded.packets.saturating_sub(seen.packets);
            let lost = match drain_state {
                DrainState::Running => unseen.min(lost),
                DrainState::Drained => unseen,
            };
            if lost > 0 {
                stream.forwarded.packets -= lost;
                stream.forwarded.bytes = seen.bytes;
                stream.drops.add(DropReason::QueueFull, lost);
            }
            self.worker.with(|engine| {
                for (subscriber, counters) in &mut stream.subscribers {
                    *counters = engine.copies().counters(*subscriber);
                }
            });
        }
        counters
    }
}

impl FastPath for AfXdpPath {
    fn forwarding_path(&self, stream: StreamId) -> Result<ForwardingPath, Error> {
        self.tables.forwarding_path(stream)
    }

    fn pass(&self, stream: StreamId) -> Result<(), Error> {
        self.tables.pass(stream)?;
        self.drain()
    }

    fn diverted(&self, stream: StreamId) -> Result<u64, Error> {
        self.tables.diverted(stream)
    }

    fn publish_done(&self, stream: StreamId, datagrams: u64) -> Result<(), Error> {
        self.tables.publish_done(stream, datagrams)
    }

    fn punts(&self) -> Result<MapHandle, Error> {
        self.tables.punts()
    }

    fn userspace_only(&self, stream: StreamId) -> BTreeSet<SubscriberId> {
        self.tables.userspace_only(stream)
    }

    fn unattached(&self, stream: StreamId) -> BTreeMap<u32, String> {
        self.tables.unattached(stream)
    }

    fn latched(&self, stream: StreamId) -> Option<SocketAddr> {
        self.tables.latched(stream)
    }

    fn slow_reason(&self, stream: StreamId, subscriber: SubscriberId) -> Option<String> {
        self.tables.slow_reason(stream, subscriber)
    }
}

fn links() -> Result<BTreeMap<u32, Link>, Error> {
    let failed = |error| Error::failed("listing interfaces", error);
    let links = Netlink::new().and_then(|mut netlink| netlink.links());
    let links = links.map_err(failed)?;
    Ok(links.into_iter().map(|link| (link.index, link)).collect())
}
