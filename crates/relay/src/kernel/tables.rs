//! The tables of one loaded fast path: moved from plan to plan, counted, and switched road by road.

mod roads;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use datapath::Error;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::exit::Exit;
use super::groups::{self, Groups, Member, Slot};
use super::{Loaded, interfaces, layout, write};
use crate::counters::{Counters, DropReason, StreamCounters, SubscriberCounters};
use crate::handover::{FastPath, Road};
use crate::plan::{Plan, SourcePolicy, Stream, StreamId, Subscriber, drop_reason};

/// A fast path's tables. One lock: plans, roads and counters may be asked for by any thread.
#[derive(Debug)]
pub(crate) struct Tables {
    ingests: MapHandle,
    streams: MapHandle,
    stream_counters: MapHandle,
    subscriber_counters: MapHandle,
    latches: MapHandle,
    diverts: MapHandle,
    done: MapHandle,
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

/// What the table of ingests holds for a stream: `struct ingest` by `struct ingest_key`.
type Ingests = BTreeMap<[u8; 24], [u8; 16]>;

impl Tables {
    /// `egress`: the program that addresses copies, in objects that broadcast. `look`: what can be
    /// done with a device of the calling thread's namespace.
    pub(crate) fn new(
        object: &Loaded,
        egress: Option<&str>,
        look: fn(u32) -> Exit,
    ) -> Result<Self, Error> {
        Ok(Self {
            ingests: object.map("ingests")?,
            streams: object.map("streams")?,
            stream_counters: object.map("stream_counters")?,
            subscriber_counters: object.map("subscriber_counters")?,
            latches: object.map("latches")?,
            diverts: object.map("diverts")?,
            done: object.map("done")?,
            look,
            state: Mutex::new(State {
                groups: Groups::new(object, egress)?,
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
        let key = stream.id.0.to_ne_bytes();
        zero(&self.stream_counters, &key)?;
        state.counted.insert(stream.id.0);
        let holder = match stream.source {
            SourcePolicy::Latch { held_by, .. } => held_by,
            _ => None,
        };
        write(
            &self.latches,
            &key,
            &layout::latch(holder, sys::clock::monotonic_ns()),
        )?;
        let road = if stream.handover.is_some() {
            Road::Diverted
        } else {
            Road::Fast
        };
        self.start_handover(stream.id)?;
        let group = self.write_group(state, stream)?;
        let value = layout::stream(stream, group.index, road).map_err(Error::Plan)?;
        write(&self.streams, &key, &value)?;
        self.write_ingests(&ingests, &Ingests::new())?;
        state.streams.insert(
            stream.id.0,
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
        let value = layout::stream(stream, group.index, road).map_err(Error::Plan)?;
        // The kernel stores word by word: programs see the old group or the new one.
        write(&self.streams, &stream.id.0.to_ne_bytes(), &value)?;
        carried.road = road;
        carried.plan = stream.clone();
        let before = mem::replace(&mut carried.ingests, ingests);
        self.write_ingests(&carried.ingests, &before)?;
        if let Some(group) = replaced {
            let retired = mem::replace(&mut carried.group, group);
            state.groups.retire(retired);
        }
        Ok(())
    }

    fn remove(&self, state: &mut State, id: u32) {
        if let Some(old) = state.streams.remove(&id) {
            for key in old.ingests.keys() {
                // A key that is not there is as good as deleted.
                let _ = self.ingests.delete(key);
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
            let value = layout::stream(&plan, group.index, carried.road).map_err(Error::Plan)?;
            write(&self.streams, &id.to_ne_bytes(), &value)?;
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
                zero(&self.subscriber_counters, &subscriber.id.0.to_ne_bytes())?;
            }
            entering.push((subscriber.id.0, stream.id.0));
        }
        state.subscribers.extend(entering);
        state.groups.write(stream.id.0, &members)
    }

    /// Writes what is new or another, then removes what is no more.
    fn write_ingests(&self, ingests: &Ingests, before: &Ingests) -> Result<(), Error> {
        for (key, value) in ingests {
            if before.get(key) != Some(value) {
                write(&self.ingests, key, value)?;
            }
        }
        for key in before.keys().filter(|key| !ingests.contains_key(*key)) {
            // A key that is not there is as good as deleted.
            let _ = self.ingests.delete(key);
        }
        Ok(())
    }

    fn count_stream(&self, id: u32) -> StreamCounters {
        let words = per_cpu_words(&self.stream_counters, id);
        let at = |from: usize| words.get(from..).unwrap_or_default();
        StreamCounters {
            received: layout::traffic(at(0)),
            forwarded: layout::traffic(at(2)),
            passed: layout::traffic(at(4)),
            drops: layout::drops(at(7)),
            copies_lost: words.get(6).copied().unwrap_or(0),
            latched: self.latched(StreamId(id)),
            subscribers: BTreeMap::new(),
        }
    }

    fn count_subscriber(&self, id: u32) -> SubscriberCounters {
        let words = per_cpu_words(&self.subscriber_counters, id);
        SubscriberCounters {
            delivered: layout::traffic(&words),
            drops: layout::drops(words.get(2..).unwrap_or_default()),
        }
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
                let value = layout::ingest(stream.id.0, at, guard, mac);
                ingests.insert(layout::ingest_key(at, *ifindex), value);
            }
        }
    }
    ingests
}

fn zero(map: &MapHandle, key: &[u8]) -> Result<(), Error> {
    let zeros = libbpf_rs::num_possible_cpus()
        .map(|cpus| vec![vec![0; map.value_size() as usize]; cpus])
        .map_err(|error| Error::failed("counting CPUs", error))?;
    map.update_percpu(key, &zeros, MapFlags::ANY)
        .map_err(|error| Error::failed("zeroing counters", error))
}

fn per_cpu_words(map: &MapHandle, slot: u32) -> Vec<u64> {
    // An array map has every slot there is: what cannot be read has not counted.
    let values = map.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY);
    layout::add_words(&values.ok().flatten().unwrap_or_default())
}
