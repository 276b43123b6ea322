//! The tables of one loaded fast path: moved from plan to plan, counted, and switched road by road.

mod roads;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bpf::{Map, PerCpu};
use datapath::Error;

use super::entries::{self, Ingest};
use super::exit::Exit;
use super::groups::{self, Fanout, Groups, Member, Slot};
use super::interfaces;
use super::skel::types;
use crate::counters::{Counters, DropReason, StreamCounters, SubscriberCounters};
use crate::handover::{FastPath, Road};
use crate::plan::{Plan, SourcePolicy, Stream, StreamId, Subscriber, drop_reason};

/// A program's maps that userspace reads or writes; [`maps`](super::maps) takes them from a skeleton.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) ingests: Map<types::ingest_key, types::ingest>,
    pub(crate) streams: Map<u32, types::stream>,
    pub(crate) groups: Map<u32, types::group>,
    pub(crate) members: Map<u32, types::member>,
    pub(crate) stream_counters: PerCpu<types::stream_counters>,
    pub(crate) subscriber_counters: PerCpu<types::subscriber_counters>,
    pub(crate) latches: Map<u32, types::latch>,
    pub(crate) diverts: Map<u32, types::divert>,
    pub(crate) done: Map<u32, u64>,
}

/// A fast path's tables. One lock: plans, roads and counters may be asked for by any thread.
#[derive(Debug)]
pub(crate) struct Tables {
    maps: Maps,
    look: fn(u32) -> Exit,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    groups: Groups,
    streams: BTreeMap<u32, Carried>,
    /// Every subscriber that has been counted, with its stream.
    subscribers: BTreeMap<u32, u32>,
    counted: BTreeSet<u32>,
    /// Every egress device, as last seen.
    devices: BTreeMap<u32, Exit>,
}

/// A stream that the tables hold.
#[derive(Debug)]
struct Carried {
    plan: Stream,
    road: Road,
    group: Slot,
    ingests: Ingests,
    /// Looks in a row that have found the fast path in charge.
    fast_for: u8,
}

impl Carried {
    /// Whether nothing that userspace sent is on its way any more, so that copies may pass over the
    /// queues on that way.
    fn is_settled(&self) -> bool {
        self.fast_for >= 2
    }
}

/// What the table of ingests holds for a stream, by address and interface.
type Ingests = BTreeMap<(SocketAddr, u32), Ingest>;

impl Tables {
    /// `fanout`: where programs broadcast. `look`: what can be done with a device of the calling
    /// thread's namespace.
    pub(crate) fn new(
        maps: Maps,
        fanout: Option<Fanout>,
        look: fn(u32) -> Exit,
    ) -> Result<Self, Error> {
        let groups = Groups::new(maps.groups.try_clone()?, maps.members.try_clone()?, fanout);
        Ok(Self {
            maps,
            look,
            state: Mutex::new(State {
                groups,
                streams: BTreeMap::new(),
                subscribers: BTreeMap::new(),
                counted: BTreeSet::new(),
                devices: BTreeMap::new(),
            }),
        })
    }

    /// Carries out a plan: what both plans cover goes on without a gap.
    pub(crate) fn apply(&self, plan: &Plan) -> Result<(), Error> {
        if let Some(stream) = plan.streams.iter().find(|s| !s.work.is_none()) {
            return Err(Error::Plan(format!(
                "stream \"{}\" has work or fec for userspace: the fast path does not apply",
                stream.name
            )));
        }
        let macs = interfaces::macs(plan)?;
        let mut state = self.state();
        let kept: BTreeSet<u32> = plan.streams.iter().map(|stream| stream.id.0).collect();
        let gone: Vec<u32> = state
            .streams
            .keys()
            .filter(|id| !kept.contains(id))
            .copied()
            .collect();
        for id in gone {
            self.remove(&mut state, id);
        }
        for stream in &plan.streams {
            self.change(&mut state, stream, ingests(stream, &macs))?;
        }
        // After everything has taken effect: this may wait.
        for stream in &plan.streams {
            state.groups.provide(stream.subscribers.len())?;
        }
        Ok(())
    }

    /// Counters of every stream since it entered the plan.
    pub(crate) fn counters(&self) -> Counters {
        let state = self.state();
        let mut counters = Counters::default();
        for id in &state.counted {
            counters.streams.insert(*id, self.count_stream(*id));
        }
        for (subscriber, stream) in &state.subscribers {
            if let Some(stream) = counters.streams.get_mut(stream) {
                stream
                    .subscribers
                    .insert(*subscriber, self.count_subscriber(*subscriber));
            }
        }
        counters
    }

    fn add(&self, state: &mut State, stream: &Stream, ingests: Ingests) -> Result<(), Error> {
        let id = stream.id.0;
        self.maps.stream_counters.zero(id)?;
        state.counted.insert(id);
        let holder = match stream.source {
            SourcePolicy::Latch { held_by, .. } => held_by,
            _ => None,
        };
        let latch = entries::latch(holder, sys::clock::monotonic_ns());
        self.maps.latches.set(&id, &latch)?;
        let road = match (&stream.policy, stream.handover) {
            (Some(_), _) => Road::Passing,
            (None, Some(_)) => Road::Diverted,
            (None, None) => Road::Fast,
        };
        self.start_handover(stream.id)?;
        let group = self.write_group(state, stream)?;
        let entry = entries::stream(stream, group.index, road).map_err(Error::Plan)?;
        self.maps.streams.set(&id, &entry)?;
        self.write_ingests(id, &ingests, &Ingests::new())?;
        state.streams.insert(
            id,
            Carried {
                plan: stream.clone(),
                road,
                group,
                ingests,
                fast_for: 0,
            },
        );
        Ok(())
    }

    fn change(&self, state: &mut State, stream: &Stream, ingests: Ingests) -> Result<(), Error> {
        let Some(old) = state.streams.get(&stream.id.0) else {
            return self.add(state, stream, ingests);
        };
        let road = match (old.road, stream.handover) {
            _ if stream.policy.is_some() => Road::Passing,
            (Road::Passing, None) if old.plan.policy.is_some() => Road::Fast,
            (Road::Passing, Some(_)) => {
                self.start_handover(stream.id)?;
                Road::Diverted
            }
            (Road::Diverted, None) => Road::Fast,
            (road, _) => road,
        };
        let taken = old.road == Road::Passing && road == Road::Diverted;
        let replace = taken || old.plan.subscribers != stream.subscribers;
        if taken && let Some(carried) = state.streams.get_mut(&stream.id.0) {
            carried.fast_for = 0;
        }
        let replaced = replace
            .then(|| self.write_group(state, stream))
            .transpose()?;
        let Some(carried) = state.streams.get_mut(&stream.id.0) else {
            return Ok(());
        };
        let group = replaced.as_ref().unwrap_or(&carried.group);
        let entry = entries::stream(stream, group.index, road).map_err(Error::Plan)?;
        // The kernel stores word by word: programs see the old group or the new one.
        self.maps.streams.set(&stream.id.0, &entry)?;
        carried.road = road;
        carried.plan = stream.clone();
        let before = mem::replace(&mut carried.ingests, ingests);
        self.write_ingests(stream.id.0, &carried.ingests, &before)?;
        if let Some(group) = replaced {
            let retired = mem::replace(&mut carried.group, group);
            state.groups.retire(retired);
        }
        Ok(())
    }

    fn remove(&self, state: &mut State, id: u32) {
        if let Some(old) = state.streams.remove(&id) {
            for key in old.ingests.keys() {
                self.remove_ingest(key);
            }
            state.groups.retire(old.group);
        }
    }

    /// Looks at every egress device again, and changes the groups it has come to or left.
    pub(crate) fn look_again(&self) -> Result<(), Error> {
        let known: Vec<u32> = self.state().devices.keys().copied().collect();
        // Without the lock: asking takes longer than a change of subscribers may.
        let found = known
            .iter()
            .map(|ifindex| (*ifindex, (self.look)(*ifindex)));
        let found: Vec<_> = found.collect();
        let mut state = self.state();
        let mut changed = BTreeSet::new();
        for (ifindex, exit) in found {
            if state.devices.get(&ifindex) != Some(&exit) {
                let before = state.devices.insert(ifindex, exit.clone());
                exit.tell(ifindex, &before.unwrap_or_default());
                changed.insert(ifindex);
            }
        }
        let settled = self.settle(&mut state)?;
        let affected: Vec<u32> = state
            .streams
            .iter()
            .filter(|(id, carried)| {
                let mut devices = carried.plan.subscribers.iter().filter_map(groups::egress);
                settled.contains(id) || devices.any(|ifindex| changed.contains(&ifindex))
            })
            .map(|(id, _)| *id)
            .collect();
        affected
            .iter()
            .try_for_each(|id| self.rewrite(&mut state, *id))
    }

    /// Whether a stream will settle at one of the next looks.
    pub(crate) fn is_settling(&self) -> bool {
        let state = self.state();
        // Of one that is diverted, only a look tells that the fast path has taken over.
        let settles = |one: &Carried| one.road == Road::Fast || one.fast_for > 0;
        let mut streams = state.streams.values();
        streams.any(|carried| !carried.is_settled() && settles(carried))
    }

    /// Finds the streams that have settled since the last look, and may use another way now.
    fn settle(&self, state: &mut State) -> Result<BTreeSet<u32>, Error> {
        let mut settled = BTreeSet::new();
        for (id, carried) in &mut state.streams {
            let before = carried.is_settled();
            carried.fast_for = match self.road_of(StreamId(*id), carried)? {
                Road::Fast => carried.fast_for.saturating_add(1),
                Road::Passing | Road::Diverted => 0,
            };
            let directly = |subscriber: &Subscriber| {
                let exit = groups::egress(subscriber).and_then(|at| state.devices.get(&at));
                exit.is_some_and(|exit| exit.is_direct_to(subscriber))
            };
            if !before && carried.is_settled() && carried.plan.subscribers.iter().any(directly) {
                settled.insert(*id);
            }
        }
        Ok(settled)
    }

    /// The same subscribers in a new version of their group.
    fn rewrite(&self, state: &mut State, id: u32) -> Result<(), Error> {
        let plan = carried(state, StreamId(id))?.plan.clone();
        let group = self.write_group(state, &plan)?;
        if let Some(carried) = state.streams.get_mut(&id) {
            let entry = entries::stream(&plan, group.index, carried.road).map_err(Error::Plan)?;
            self.maps.streams.set(&id, &entry)?;
            let retired = mem::replace(&mut carried.group, group);
            state.groups.retire(retired);
        }
        Ok(())
    }

    fn members<'a>(&self, state: &mut State, stream: &'a Stream) -> Vec<Member<'a>> {
        let carried = state.streams.get(&stream.id.0);
        let settled = carried.is_some_and(Carried::is_settled);
        let mut members = Vec::new();
        for subscriber in &stream.subscribers {
            let Some(ifindex) = groups::egress(subscriber) else {
                // One of this machine's own is userspace's to count.
                let refused = drop_reason(&subscriber.next_hop);
                members.extend(refused.map(|reason| Member {
                    subscriber,
                    refused: Some(reason),
                    direct: false,
                }));
                continue;
            };
            let exit = state.devices.entry(ifindex).or_insert_with(|| {
                let exit = (self.look)(ifindex);
                exit.tell(ifindex, &Exit::default());
                exit
            });
            members.push(Member {
                subscriber,
                refused: exit.slow.as_ref().map(|_| DropReason::Transmit),
                direct: settled && exit.is_direct_to(subscriber),
            });
        }
        members
    }

    fn write_group(&self, state: &mut State, stream: &Stream) -> Result<Slot, Error> {
        let members = self.members(state, stream);
        let known = state
            .streams
            .get(&stream.id.0)
            .map(|carried| &carried.plan.subscribers);
        let mut entering = Vec::new();
        for subscriber in &stream.subscribers {
            let entered = known.is_none_or(|known| known.iter().all(|old| old.id != subscriber.id));
            if entered {
                self.maps.subscriber_counters.zero(subscriber.id.0)?;
            }
            entering.push((subscriber.id.0, stream.id.0));
        }
        state.subscribers.extend(entering);
        state.groups.write(stream.id.0, &members)
    }

    /// Writes what is new or another, then removes what is no more.
    fn write_ingests(&self, stream: u32, ingests: &Ingests, before: &Ingests) -> Result<(), Error> {
        for (key, ingest) in ingests {
            if before.get(key) != Some(ingest) {
                let (at, ifindex) = *key;
                let entry = entries::ingest(stream, at, *ingest);
                let key = entries::ingest_key(at, ifindex);
                self.maps.ingests.set(&key, &entry)?;
            }
        }
        for key in before.keys().filter(|key| !ingests.contains_key(*key)) {
            self.remove_ingest(key);
        }
        Ok(())
    }

    fn remove_ingest(&self, (at, ifindex): &(SocketAddr, u32)) {
        // A key that is not there is as good as deleted.
        let _ = self
            .maps
            .ingests
            .remove(&entries::ingest_key(*at, *ifindex));
    }

    fn count_stream(&self, id: u32) -> StreamCounters {
        // An array map has every slot there is: what cannot be read has not counted.
        let sums = self.maps.stream_counters.sum(id).unwrap_or_default();
        entries::stream_counters(&sums, self.latched(StreamId(id)))
    }

    fn count_subscriber(&self, id: u32) -> SubscriberCounters {
        let sums = self.maps.subscriber_counters.sum(id).unwrap_or_default();
        entries::subscriber_counters(&sums)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The tables are whole after every step: a panic elsewhere does not spoil them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn carried(state: &State, stream: StreamId) -> Result<&Carried, Error> {
    let carried = state.streams.get(&stream.0);
    carried.ok_or_else(|| Error::Plan(format!("stream slot {} is not in the plan", stream.0)))
}

/// The ingest, and the ports that only this machine may send to, on every interface. An interface
/// whose address is unknown has none that a frame could be sent to.
fn ingests(stream: &Stream, macs: &BTreeMap<u32, [u8; 6]>) -> Ingests {
    let shadow = stream.handover.map(|handover| handover.shadow_port);
    let guarded = || stream.copy_port.into_iter().chain(shadow);
    let mut ingests = Ingests::new();
    for at in &stream.ingest {
        let own = std::iter::once((at.port(), false));
        for (port, guard) in guarded().map(|port| (port, true)).chain(own) {
            let at = SocketAddr::new(at.ip(), port);
            for ifindex in &stream.interfaces {
                let mac = macs.get(ifindex).copied().unwrap_or_default();
                ingests.insert((at, *ifindex), Ingest { guard, mac });
            }
        }
    }
    ingests
}
