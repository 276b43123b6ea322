//! The tables of one loaded fast path: updated from plan to plan, with counters and the forwarding path of
//! each stream.

mod forwarding_path;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bpf::{Map, PerCpu, Plain as _};
use datapath::Error;
use libbpf_rs::MapHandle;

use super::egress_device::EgressDevice;
use super::entries::{self, MAX_GROUP_DEVICES};
use super::groups::{self, Broadcast, Groups, Member, Slot};
use super::interfaces;
use super::skel::types;
use crate::counters::{Counters, StreamCounters, SubscriberCounters};
use crate::handover::{FastPath, ForwardingPath};
use crate::plan::{Plan, SourcePolicy, Stream, StreamId, Subscriber, SubscriberId, drop_reason};

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
    pub(crate) source_prefixes: Map<types::source_prefix, u32>,
    pub(crate) kernel_sources: Map<u32, u32>,
    pub(crate) punts: MapHandle,
}

/// A fast path's tables. One lock protects them: any thread may apply plans, switch paths and read counters.
#[derive(Debug)]
pub(crate) struct Tables {
    maps: Maps,
    look: fn(u32) -> EgressDevice,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    groups: Groups,
    streams: BTreeMap<u32, InstalledStream>,
    /// The subscribers whose counts are read, with their streams: those of the last plan, and those that left with it.
    subscribers: BTreeMap<u32, u32>,
    /// The streams whose counts are read, likewise.
    counted: BTreeSet<u32>,
    /// Every egress device of a stream, as last seen.
    devices: BTreeMap<u32, EgressDevice>,
    /// Streams that userspace relays because they could not be written to the tables, and why.
    refused: BTreeMap<u32, String>,
    /// Interfaces that the program could not be attached to, and why.
    unattached: BTreeMap<u32, String>,
    kernel_sources: BTreeSet<Ipv4Addr>,
}

/// A stream that is installed in the tables.
#[derive(Debug)]
struct InstalledStream {
    plan: Stream,
    path: ForwardingPath,
    group: Slot,
    ingests: Ingests,
    /// Subscribers that userspace sends copies to, and why where they are not on this machine.
    userspace_only: BTreeMap<SubscriberId, Option<String>>,
    /// Consecutive checks that found the stream on the fast path.
    fast_checks: u8,
}

impl InstalledStream {
    /// Whether all packets that userspace sent have left its queues, so that copies may bypass these queues.
    fn is_settled(&self) -> bool {
        self.fast_checks >= 2
    }
}

/// What the table of ingests holds for a stream: link-layer addresses by address and interface.
type Ingests = BTreeMap<(SocketAddr, u32), [u8; 6]>;

/// A stream's subscribers, divided into those that the program sends to and those that userspace sends to.
#[derive(Debug, Default)]
struct SubscriberSplit<'a> {
    members: Vec<Member<'a>>,
    userspace_only: BTreeMap<SubscriberId, Option<String>>,
}

impl State {
    /// Whoever took a stream or a subscriber out of an earlier plan has its last counts: without this, a reading of all
    /// counts would cost more with each that has ever been there.
    fn forget_counts(&mut self) {
        let Self {
            streams,
            subscribers,
            counted,
            ..
        } = self;
        counted.retain(|id| streams.contains_key(id));
        let present: BTreeSet<u32> = streams
            .values()
            .flat_map(|installed| &installed.plan.subscribers)
            .map(|subscriber| subscriber.id.0)
            .collect();
        subscribers.retain(|id, _| present.contains(id));
    }
}

impl Tables {
    /// `broadcast`: where programs broadcast. `look`: what can be done with a device of the calling
    /// thread's namespace.
    pub(crate) fn new(
        maps: Maps,
        broadcast: Option<Broadcast>,
        look: fn(u32) -> EgressDevice,
    ) -> Result<Self, Error> {
        let groups = Groups::new(
            maps.groups.try_clone()?,
            maps.members.try_clone()?,
            broadcast,
        );
        Ok(Self {
            maps,
            look,
            state: Mutex::new(State {
                groups,
                streams: BTreeMap::new(),
                subscribers: BTreeMap::new(),
                counted: BTreeSet::new(),
                devices: BTreeMap::new(),
                refused: BTreeMap::new(),
                unattached: BTreeMap::new(),
                kernel_sources: BTreeSet::new(),
            }),
        })
    }

    /// Carries out a plan: what both plans cover goes on without a gap. Streams are independent: one that cannot be
    /// written is left to userspace, and [`FastPath::slow_reason`] says why. So are those in `refused`.
    pub(crate) fn apply(&self, plan: &Plan, refused: &BTreeMap<u32, String>) -> Result<(), Error> {
        if let Some(stream) = plan.streams.iter().find(|s| !s.work.is_none()) {
            return Err(Error::Plan(format!(
                "stream \"{}\" has work or fec for userspace: the fast path does not apply",
                stream.name
            )));
        }
        let macs = interfaces::macs(plan)?;
        let mut state = self.state();
        state.forget_counts();
        let planned: BTreeSet<u32> = plan.streams.iter().map(|stream| stream.id.0).collect();
        let gone: Vec<u32> = state
            .streams
            .keys()
            .filter(|id| !planned.contains(id))
            .copied()
            .collect();
        for id in gone {
            self.remove(&mut state, id);
        }
        self.write_kernel_sources(&mut state, &plan.kernel_sources)?;
        for stream in &plan.streams {
            let changed = match refused.get(&stream.id.0) {
                None => self.change(&mut state, stream, ingests(stream, &macs)),
                Some(reason) => Err(Error::Plan(reason.clone())),
            };
            if let Err(error) = changed {
                if !state.streams.contains_key(&stream.id.0) {
                    // What was written of its sources would hold for the next stream in its slot.
                    for key in entries::source_prefixes(stream) {
                        let _ = self.maps.source_prefixes.remove(&key);
                    }
                }
                self.refuse(&mut state, stream, error.to_string());
            } else if state.refused.remove(&stream.id.0).is_some() {
                tracing::info!(stream = stream.name, "the fast path takes it");
            }
        }
        let used = |state: &State, ifindex: u32| {
            let subscribers = state
                .streams
                .values()
                .flat_map(|installed| &installed.plan.subscribers);
            subscribers
                .filter_map(groups::egress)
                .any(|egress| egress == ifindex)
        };
        let unused: Vec<u32> = state.devices.keys().copied().collect();
        for ifindex in unused {
            if !used(&state, ifindex) {
                state.devices.remove(&ifindex);
            }
        }
        // After everything has taken effect: this may wait. A change that finds no slot makes one.
        for stream in &plan.streams {
            if let Err(error) = state.groups.provide(stream.subscribers.len()) {
                tracing::debug!(%error, "no slots ahead of need");
            }
        }
        Ok(())
    }

    /// Leaves a stream to userspace. Its datagrams reach the ingest socket; what the tables hold of it changes no more.
    fn refuse(&self, state: &mut State, stream: &Stream, reason: String) {
        let id = stream.id.0;
        if let Some(installed) = state.streams.get_mut(&id) {
            let entry = entries::stream(
                &installed.plan,
                installed.group.index,
                ForwardingPath::Passing,
                false,
            );
            if let Err(error) = self.maps.streams.set(&id, &entry) {
                tracing::error!(stream = stream.name, %error, "cannot be left to userspace");
            }
            installed.path = ForwardingPath::Passing;
            installed.userspace_only.clear();
        }
        if state.refused.get(&id) != Some(&reason) {
            tracing::warn!(stream = stream.name, reason, "userspace relays it");
        }
        state.refused.insert(id, reason);
    }

    /// Keeps which interfaces the program is not attached to, and why.
    pub(crate) fn set_unattached(&self, unattached: BTreeMap<u32, String>) {
        let mut state = self.state();
        for (ifindex, reason) in &unattached {
            if state.unattached.get(ifindex) != Some(reason) {
                tracing::warn!(
                    ifindex,
                    reason,
                    "userspace relays what comes in by this interface"
                );
            }
        }
        state.unattached = unattached;
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
        let path = match (&stream.policy, stream.diverted) {
            (Some(_), _) => ForwardingPath::Passing,
            (None, true) => ForwardingPath::Diverted,
            (None, false) => ForwardingPath::Fast,
        };
        self.start_handover(stream.id)?;
        self.write_sources(None, stream)?;
        let (group, userspace_only) = self.write_group(state, stream)?;
        let entry = entries::stream(stream, group.index, path, !userspace_only.is_empty());
        let written = self
            .maps
            .streams
            .set(&id, &entry)
            .map_err(Error::from)
            .and_then(|()| self.write_ingests(id, &ingests, &Ingests::new()));
        if let Err(error) = written {
            ingests.keys().for_each(|key| self.remove_ingest(key));
            state.groups.retire(group);
            return Err(error);
        }
        state.streams.insert(
            id,
            InstalledStream {
                plan: stream.clone(),
                path,
                group,
                ingests,
                userspace_only,
                fast_checks: 0,
            },
        );
        Ok(())
    }

    fn change(&self, state: &mut State, stream: &Stream, ingests: Ingests) -> Result<(), Error> {
        let Some(old) = state.streams.get(&stream.id.0) else {
            return self.add(state, stream, ingests);
        };
        let was_refused = state.refused.contains_key(&stream.id.0);
        let path = match (old.path, stream.diverted) {
            _ if stream.policy.is_some() => ForwardingPath::Passing,
            (ForwardingPath::Passing, false) if old.plan.policy.is_some() || was_refused => {
                ForwardingPath::Fast
            }
            (ForwardingPath::Passing, true) => {
                self.start_handover(stream.id)?;
                ForwardingPath::Diverted
            }
            (ForwardingPath::Diverted, false) => ForwardingPath::Fast,
            (path, _) => path,
        };
        let taken = old.path == ForwardingPath::Passing && path == ForwardingPath::Diverted;
        let replace = taken || was_refused || old.plan.subscribers != stream.subscribers;
        let sources = old.plan.clone();
        if taken && let Some(installed) = state.streams.get_mut(&stream.id.0) {
            installed.fast_checks = 0;
        }
        self.write_sources(Some(&sources), stream)?;
        let replaced = replace
            .then(|| self.write_group(state, stream))
            .transpose()?;
        let Some(installed) = state.streams.get_mut(&stream.id.0) else {
            return Ok(());
        };
        let retired = replaced.map(|(group, userspace_only)| {
            installed.userspace_only = userspace_only;
            mem::replace(&mut installed.group, group)
        });
        let copies = !installed.userspace_only.is_empty();
        let entry = entries::stream(stream, installed.group.index, path, copies);
        // The kernel stores word by word: programs see the old group or the new one.
        let written = self.maps.streams.set(&stream.id.0, &entry);
        installed.path = path;
        installed.plan = stream.clone();
        let before = mem::replace(&mut installed.ingests, ingests);
        let written = written
            .map_err(Error::from)
            .and_then(|()| self.write_ingests(stream.id.0, &installed.ingests, &before));
        if written.is_err() {
            // Those there were go, with those there would be: the next plan writes all of them again.
            let keys = installed.ingests.keys().chain(before.keys());
            keys.for_each(|key| self.remove_ingest(key));
            installed.ingests.clear();
        }
        self.forget_sources(&sources, stream);
        if let Some(retired) = retired {
            state.groups.retire(retired);
        }
        written
    }

    fn write_kernel_sources(
        &self,
        state: &mut State,
        sources: &BTreeSet<Ipv4Addr>,
    ) -> Result<(), Error> {
        let key = |address: &Ipv4Addr| u32::from_ne_bytes(address.octets());
        for address in sources.difference(&state.kernel_sources) {
            self.maps.kernel_sources.set(&key(address), &1)?;
        }
        for address in state.kernel_sources.difference(sources) {
            // A key that is not there is as good as removed.
            let _ = self.maps.kernel_sources.remove(&key(address));
        }
        state.kernel_sources.clone_from(sources);
        Ok(())
    }

    /// Adds the allowed sources that a stream's entry has no room for.
    fn write_sources(&self, before: Option<&Stream>, stream: &Stream) -> Result<(), Error> {
        let known = before.map(entries::source_prefixes).unwrap_or_default();
        for key in entries::source_prefixes(stream) {
            if !known.iter().any(|known| known.bytes() == key.bytes()) {
                self.maps.source_prefixes.set(&key, &1)?;
            }
        }
        Ok(())
    }

    /// Removes those that only the stream as it was allows.
    fn forget_sources(&self, before: &Stream, stream: &Stream) {
        let allowed = entries::source_prefixes(stream);
        for key in entries::source_prefixes(before) {
            if !allowed.iter().any(|allowed| allowed.bytes() == key.bytes()) {
                // A key that is not there is as good as removed.
                let _ = self.maps.source_prefixes.remove(&key);
            }
        }
    }

    fn remove(&self, state: &mut State, id: u32) {
        if let Some(old) = state.streams.remove(&id) {
            for key in old.ingests.keys() {
                self.remove_ingest(key);
            }
            for key in entries::source_prefixes(&old.plan) {
                let _ = self.maps.source_prefixes.remove(&key);
            }
            state.groups.retire(old.group);
        }
        state.refused.remove(&id);
    }

    /// Checks every egress device again, and rewrites the groups of streams whose devices have changed.
    pub(crate) fn refresh_devices(&self) -> Result<(), Error> {
        let known: Vec<u32> = self.state().devices.keys().copied().collect();
        // Without the lock: asking takes longer than a change of subscribers may.
        let found = known
            .iter()
            .map(|ifindex| (*ifindex, (self.look)(*ifindex)));
        let found: Vec<_> = found.collect();
        let mut state = self.state();
        let mut changed = BTreeSet::new();
        for (ifindex, device) in found {
            if state.devices.get(&ifindex) != Some(&device) {
                let before = state.devices.insert(ifindex, device.clone());
                device.log(ifindex, &before.unwrap_or_default());
                changed.insert(ifindex);
            }
        }
        let settled = self.settle(&mut state)?;
        let affected: Vec<u32> = state
            .streams
            .iter()
            .filter(|(id, installed)| {
                let mut devices = installed.plan.subscribers.iter().filter_map(groups::egress);
                settled.contains(id) || devices.any(|ifindex| changed.contains(&ifindex))
            })
            .map(|(id, _)| *id)
            .collect();
        for id in affected {
            if let Err(error) = self.rewrite(&mut state, id)
                && let Some(plan) = state
                    .streams
                    .get(&id)
                    .map(|installed| installed.plan.clone())
            {
                self.refuse(&mut state, &plan, error.to_string());
            }
        }
        Ok(())
    }

    /// Whether a stream will settle at one of the next looks.
    pub(crate) fn is_settling(&self) -> bool {
        let state = self.state();
        // Of one that is diverted, only a look tells that the fast path has taken over.
        let settles =
            |one: &InstalledStream| one.path == ForwardingPath::Fast || one.fast_checks > 0;
        let mut streams = state.streams.values();
        streams.any(|installed| !installed.is_settled() && settles(installed))
    }

    /// Finds the streams that have settled since the last look, and may use another way now.
    fn settle(&self, state: &mut State) -> Result<BTreeSet<u32>, Error> {
        let mut settled = BTreeSet::new();
        for (id, installed) in &mut state.streams {
            let before = installed.is_settled();
            installed.fast_checks = match self.current_path(StreamId(*id), installed)? {
                ForwardingPath::Fast => installed.fast_checks.saturating_add(1),
                ForwardingPath::Passing | ForwardingPath::Diverted => 0,
            };
            let directly = |subscriber: &Subscriber| {
                let device = groups::egress(subscriber).and_then(|at| state.devices.get(&at));
                device.is_some_and(|device| device.is_direct_to(subscriber))
            };
            if !before && installed.is_settled() && installed.plan.subscribers.iter().any(directly)
            {
                settled.insert(*id);
            }
        }
        Ok(settled)
    }

    /// The same subscribers in a new version of their group.
    fn rewrite(&self, state: &mut State, id: u32) -> Result<(), Error> {
        let plan = installed(state, StreamId(id))?.plan.clone();
        let (group, userspace_only) = self.write_group(state, &plan)?;
        if let Some(installed) = state.streams.get_mut(&id) {
            let copies = !userspace_only.is_empty();
            let entry = entries::stream(&plan, group.index, installed.path, copies);
            self.maps.streams.set(&id, &entry)?;
            installed.userspace_only = userspace_only;
            let retired = mem::replace(&mut installed.group, group);
            state.groups.retire(retired);
        }
        Ok(())
    }

    /// Divides the subscribers: those that the program sends to, and those that are left to userspace.
    fn split_subscribers<'a>(
        &self,
        state: &mut State,
        stream: &'a Stream,
    ) -> Result<SubscriberSplit<'a>, Error> {
        let installed = state.streams.get(&stream.id.0);
        let settled = installed.is_some_and(InstalledStream::is_settled);
        let mut split = SubscriberSplit::default();
        let mut devices = BTreeSet::new();
        for subscriber in &stream.subscribers {
            let Some(ifindex) = groups::egress(subscriber) else {
                match drop_reason(&subscriber.next_hop) {
                    Some(reason) => split.members.push(Member {
                        subscriber,
                        refused: Some(reason),
                        direct: false,
                    }),
                    // One of this machine's own.
                    None => {
                        split.userspace_only.insert(subscriber.id, None);
                    }
                }
                continue;
            };
            let device = state.devices.entry(ifindex).or_insert_with(|| {
                let device = (self.look)(ifindex);
                device.log(ifindex, &EgressDevice::default());
                device
            });
            let direct = settled && device.is_direct_to(subscriber);
            let slow = match device.slow.clone() {
                None if !state.groups.admits(ifindex, &devices)? => Some(format!(
                    "a fast path sends a stream by at most {MAX_GROUP_DEVICES} devices, and all streams by at most {}",
                    entries::MAX_DEVICES
                )),
                slow => slow,
            };
            if slow.is_some() {
                split.userspace_only.insert(subscriber.id, slow);
                continue;
            }
            devices.insert(ifindex);
            split.members.push(Member {
                subscriber,
                refused: None,
                direct,
            });
        }
        Ok(split)
    }

    /// Writes a version of a stream's group; returns it, and the subscribers that are userspace's.
    fn write_group(
        &self,
        state: &mut State,
        stream: &Stream,
    ) -> Result<(Slot, BTreeMap<SubscriberId, Option<String>>), Error> {
        let split = self.split_subscribers(state, stream)?;
        let known = state
            .streams
            .get(&stream.id.0)
            .map(|installed| &installed.plan.subscribers);
        let mut entering = Vec::new();
        for subscriber in &stream.subscribers {
            let entered = known.is_none_or(|known| known.iter().all(|old| old.id != subscriber.id));
            if entered {
                self.maps.subscriber_counters.zero(subscriber.id.0)?;
            }
            entering.push((subscriber.id.0, stream.id.0));
        }
        state.subscribers.extend(entering);
        let group = state.groups.write(stream.id.0, &split.members)?;
        Ok((group, split.userspace_only))
    }

    /// Writes what is new or another, then removes what is no more.
    fn write_ingests(&self, stream: u32, ingests: &Ingests, before: &Ingests) -> Result<(), Error> {
        for (key, mac) in ingests {
            if before.get(key) != Some(mac) {
                let (at, ifindex) = *key;
                let entry = entries::ingest(stream, at, *mac);
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

fn installed(state: &State, stream: StreamId) -> Result<&InstalledStream, Error> {
    let installed = state.streams.get(&stream.0);
    installed.ok_or_else(|| {
        let reason = state.refused.get(&stream.0).cloned();
        Error::Plan(
            reason.unwrap_or_else(|| format!("stream slot {} is not in the plan", stream.0)),
        )
    })
}

/// A stream's addresses on every interface. An interface whose address is unknown has none that a frame could be sent
/// to.
fn ingests(stream: &Stream, macs: &BTreeMap<u32, [u8; 6]>) -> Ingests {
    let of_address = |at: &SocketAddr| {
        let at = *at;
        let mac = |ifindex: &u32| macs.get(ifindex).copied().unwrap_or_default();
        let interfaces = stream.interfaces.iter();
        interfaces
            .map(move |ifindex| ((at, *ifindex), mac(ifindex)))
            .collect::<Vec<_>>()
    };
    stream.ingest.iter().flat_map(of_address).collect()
}
