//! The relay itself: it owns sockets, slots and next hops, makes the plans, and keeps every
//! datapath on its plan. How packets are handled is the datapaths' business.

mod instance;
mod machine;
mod metrics;
mod reload;
mod sockets;
mod stream;
mod switch;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use control::{Error, Kind};
use datapath::Datapath;
use netdev::policy::PolicyMonitor;
use netdev::{NextHop, UnresolvedReason};

use crate::Relay;
use crate::config::{self, Config};
use crate::counters::StreamCounters;
use crate::plan::{MAX_FANOUT, MAX_STREAMS, MAX_SUBSCRIBERS, StreamId, SubscriberId};
use crate::spec::{StreamSpec, SubscriberSpec};
use instance::Instance;
use machine::Machine;
use stream::Stream;

pub use reload::Changes;
pub use view::{Explanation, SlowSubscriber, StreamView, SubscriberView};

/// How often addresses, interfaces, expiries and the datapaths' health are looked at. Next hops
/// are followed as they change.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// How long a start waits for the neighbours to answer.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(1);

/// A running relay. Dropping it stops every datapath.
#[derive(Debug)]
pub struct Core {
    shared: Arc<Shared>,
    path: PathBuf,
    /// The streams of the file as it was read last.
    configured: Mutex<reload::Streams>,
    follower: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stopping: AtomicBool,
}

struct State {
    datapaths: Vec<Box<dyn Datapath<Relay>>>,
    /// The next datapath is pinned to the first.
    cpus: Vec<usize>,
    machine: Machine,
    policy: PolicyMonitor,
    /// As [`crate::plan::Plan::kernel_sources`].
    kernel_sources: BTreeSet<Ipv4Addr>,
    streams: Vec<Stream>,
    instances: BTreeMap<String, Instance>,
    /// Final counts of instances that were stopped.
    finals: BTreeMap<String, instance::Counts>,
    /// Slots go round, so that a slot's late counts are not taken for its next user's.
    next_stream: u32,
    next_subscriber: u32,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Opens every stream's sockets, starts the datapaths they ask for, and returns once packets
    /// are handled and the neighbours have answered or had their time.
    pub fn start(config: &Config) -> Result<Self, Error> {
        let handle = Arc::new(OnceLock::<Thread>::new());
        let woken = handle.clone();
        let wake = move || {
            if let Some(thread) = woken.get() {
                thread.unpark();
            }
        };
        let mut state = State::new(config.cpus.clone(), wake)?;
        for spec in &config.streams {
            state.open(spec.clone())?;
        }
        state.follow_addresses();
        state.await_neighbours();
        for at in 0..state.streams.len() {
            state.ask_policy_of(at);
        }
        let mut names: Vec<_> = config.streams.iter().map(|spec| &spec.datapath).collect();
        names.sort();
        names.dedup();
        for name in names {
            state.apply(name)?;
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            stopping: AtomicBool::new(false),
        });
        let follower_state = shared.clone();
        let follower = thread::Builder::new()
            .name("relay-follower".into())
            .spawn(move || follower_state.run_follower())
            .map_err(Error::failed)?;
        // Changes from before are taken over by its first look.
        let _first = handle.set(follower.thread().clone());
        Ok(Self {
            shared,
            path: config.path.clone(),
            configured: Mutex::new(reload::streams(config)),
            follower: Some(follower),
        })
    }

    /// Reads the configuration file again and changes what differs in its streams. What the file says of control
    /// addresses and CPUs holds from the next start.
    ///
    /// # Errors
    /// The file cannot be read or is wrong: nothing was changed.
    pub fn reload(&self) -> Result<Changes, Error> {
        let datapaths = crate::datapaths();
        let names: Vec<_> = datapaths.iter().map(|datapath| datapath.name()).collect();
        let config = config::load(&self.path, &names)
            .map_err(|error| Error::bad_request(error.to_string()))?;
        let mut configured = self
            .configured
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(reload::reload(
            self,
            &mut configured,
            reload::streams(&config),
        ))
    }

    /// Adds a stream with its subscribers and starts relaying it.
    pub fn add_stream(&self, spec: StreamSpec) -> Result<(), Error> {
        self.lock().add_stream(spec)
    }

    /// Stops relaying a stream and closes its sockets.
    pub fn remove_stream(&self, name: &str) -> Result<(), Error> {
        let mut state = self.lock();
        let at = state.find(name)?;
        state.streams[at].settled()?;
        match state.forget_stream(at).place.datapath {
            Some(datapath) => state.apply(&datapath),
            None => Ok(()),
        }
    }

    /// Adds a subscriber, or renews the one of this name: its lifetime, and its destination if that is another. Once
    /// this returns, the next datagram goes to it.
    pub fn add_subscriber(&self, stream: &str, spec: SubscriberSpec) -> Result<(), Error> {
        let mut state = self.lock();
        let at = state.find(stream)?;
        state.streams[at].settled()?;
        state.machine.refresh();
        let renewed = |known: &SubscriberSpec| SubscriberSpec {
            expires: spec.expires,
            ..known.clone()
        };
        let same = |known: &&mut stream::Subscriber| renewed(&known.spec) == spec;
        if let Some(known) = state.streams[at].subscribers.iter_mut().find(same) {
            known.expires = spec.expires.map(|span| Instant::now() + span.0);
            known.spec = spec;
            return Ok(());
        }
        // One that comes back under its name from elsewhere, such as behind a NAT, takes its own place.
        let named = |known: &stream::Subscriber| known.spec.name == spec.name;
        let replaced = state.streams[at].subscribers.iter().position(named);
        let replaced = replaced.map(|old| state.streams[at].subscribers.remove(old));
        let applied = state
            .check_subscriber(at, &spec)
            .and_then(|()| state.subscribe(at, spec))
            .and_then(|()| {
                state.ask_policy_of(at);
                let applied = state.apply_stream(at);
                if applied.is_err()
                    && let Some(failed) = state.streams[at].subscribers.pop()
                {
                    state.forget(&failed);
                }
                applied
            });
        match (&applied, replaced) {
            (Ok(()), Some(old)) => state.forget(&old),
            (Ok(()), None) => {}
            (Err(_), old) => {
                state.streams[at].subscribers.extend(old);
                state.ask_policy_of(at);
                let _restored = state.apply_stream(at);
            }
        }
        applied
    }

    /// Removes a subscriber. Once this returns, nothing more is sent to it.
    pub fn remove_subscriber(&self, stream: &str, name: &str) -> Result<(), Error> {
        let mut state = self.lock();
        let at = state.find(stream)?;
        state.streams[at].settled()?;
        let subscriber = state.streams[at].subscriber(name)?;
        let subscriber = state.streams[at].subscribers.remove(subscriber);
        state.ask_policy_of(at);
        let applied = state.apply_stream(at);
        state.forget(&subscriber);
        applied
    }

    /// The streams as described, with the datapath each is on now.
    pub fn streams(&self) -> Vec<StreamSpec> {
        self.lock().streams.iter().map(Stream::describe).collect()
    }

    /// Stops every datapath, after what is queued is sent, and returns the final counts.
    pub fn stop(mut self) -> Vec<StreamView> {
        self.end();
        let mut state = self.lock();
        for name in state.instances.keys().cloned().collect::<Vec<_>>() {
            state.halt(&name);
            for at in 0..state.streams.len() {
                if state.streams[at].place.datapath.as_deref() == Some(&*name) {
                    state.fold(at, &name);
                }
            }
        }
        state.views()
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Some(follower) = self.follower.take() {
            follower.thread().unpark();
            if follower.join().is_err() {
                tracing::error!("the follower thread had panicked");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the machine until the relay stops.
    fn run_follower(&self) {
        let mut due = Instant::now();
        while !self.stopping.load(Ordering::SeqCst) {
            let now = Instant::now();
            if now >= due {
                self.lock().follow(Extent::All);
                due = Instant::now() + FOLLOW_INTERVAL;
            } else {
                self.lock().follow(Extent::NextHops);
            }
            thread::park_timeout(due.saturating_duration_since(Instant::now()));
        }
    }
}

/// What the follower looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The streams whose next hops, interfaces or addresses have changed: a next hop has.
    NextHops,
    /// The whole policy of the kernel as well, which not every change is announced of.
    All,
}

impl State {
    fn new(cpus: Vec<usize>, on_change: impl Fn() + Send + 'static) -> Result<Self, Error> {
        Ok(Self {
            datapaths: crate::datapaths(),
            cpus,
            machine: Machine::new(on_change)?,
            policy: PolicyMonitor::new().map_err(Error::failed)?,
            kernel_sources: BTreeSet::new(),
            streams: Vec::new(),
            instances: BTreeMap::new(),
            finals: BTreeMap::new(),
            next_stream: 0,
            next_subscriber: 0,
        })
    }

    /// Adds a stream. What the kernel has is read once, and of the devices only those of this stream are asked about: the
    /// follower looks at the others.
    fn add_stream(&mut self, spec: StreamSpec) -> Result<(), Error> {
        self.check(&spec)?;
        let (name, datapath) = (spec.name.clone(), spec.datapath.clone());
        self.machine.refresh();
        let added = self.open(spec).and_then(|()| {
            let at = self.find(&name)?;
            self.policy.refresh_devices(&self.streams[at].devices());
            self.ask_policy_of(at);
            self.apply(&datapath)
        });
        if added.is_err()
            && let Ok(at) = self.find(&name)
        {
            self.forget_stream(at);
            let _restored = self.apply(&datapath);
        }
        added
    }

    fn find(&self, name: &str) -> Result<usize, Error> {
        let named = |stream: &Stream| stream.spec.name == name;
        self.streams
            .iter()
            .position(named)
            .ok_or_else(|| Error::not_found(format!("no stream \"{name}\"")))
    }

    fn check(&self, spec: &StreamSpec) -> Result<(), Error> {
        let names: Vec<_> = self
            .datapaths
            .iter()
            .map(|datapath| datapath.name())
            .collect();
        let others: Vec<_> = self.streams.iter().map(Stream::describe).collect();
        spec.check(&names, &others)
            .map_err(|problem| Error::bad_request(problem.message))
    }

    fn check_subscriber(&self, at: usize, spec: &SubscriberSpec) -> Result<(), Error> {
        let described: Vec<_> = self.streams.iter().map(Stream::describe).collect();
        let stream = &described[at];
        if stream.subscribers.len() == MAX_FANOUT {
            let message = format!(
                "stream \"{}\" has {MAX_FANOUT} subscribers already",
                stream.name
            );
            return Err(Error::new(Kind::Conflict, message));
        }
        stream
            .check_subscriber(spec, &stream.subscribers, &described)
            .map_err(|what| Error::bad_request(format!("subscriber \"{}\": {what}", spec.name)))
    }

    /// Opens a stream that was checked, with its subscribers; no datapath has it yet.
    fn open(&mut self, mut spec: StreamSpec) -> Result<(), Error> {
        let id = self.stream_slot()?;
        let subscribers = std::mem::take(&mut spec.subscribers);
        let stream = Stream::open(id, spec, &mut self.machine)?;
        self.streams.push(stream);
        let at = self.streams.len() - 1;
        for subscriber in subscribers {
            if let Err(error) = self.subscribe(at, subscriber) {
                self.forget_stream(at);
                return Err(error);
            }
        }
        Ok(())
    }

    fn subscribe(&mut self, at: usize, spec: SubscriberSpec) -> Result<(), Error> {
        let id = self.subscriber_slot()?;
        self.streams[at].subscribe(id, spec, &mut self.machine)
    }

    /// Takes a stream out, and stops following the ways to its subscribers.
    fn forget_stream(&mut self, at: usize) -> Stream {
        let stream = self.streams.remove(at);
        for subscriber in &stream.subscribers {
            self.forget(subscriber);
        }
        stream
    }

    /// Stops following the way to a subscriber that is gone, unless another needs it.
    fn forget(&self, gone: &stream::Subscriber) {
        let destination = gone.route;
        let mut others = self.streams.iter().flat_map(|stream| &stream.subscribers);
        if !others.any(|other| other.route == destination) {
            self.machine.forget(&destination);
        }
    }

    fn stream_slot(&mut self) -> Result<StreamId, Error> {
        let used: Vec<_> = self.streams.iter().map(|stream| stream.id.0).collect();
        let slot = free_slot(&used, &mut self.next_stream, MAX_STREAMS);
        slot.map(StreamId)
            .ok_or_else(|| full("streams", MAX_STREAMS))
    }

    fn subscriber_slot(&mut self) -> Result<SubscriberId, Error> {
        let subscribers = self.streams.iter().flat_map(|stream| &stream.subscribers);
        let used: Vec<_> = subscribers.map(|subscriber| subscriber.id.0).collect();
        let slot = free_slot(&used, &mut self.next_subscriber, MAX_SUBSCRIBERS);
        slot.map(SubscriberId)
            .ok_or_else(|| full("subscribers", MAX_SUBSCRIBERS))
    }

    fn waits_for_neighbours(&self) -> bool {
        let subscribers = self.streams.iter().flat_map(|stream| &stream.subscribers);
        subscribers.into_iter().any(|subscriber| {
            matches!(
                subscriber.next_hop,
                NextHop::Unresolved(UnresolvedReason::NoNeighbour { .. })
            )
        })
    }

    fn await_neighbours(&mut self) {
        let deadline = Instant::now() + NEIGHBOUR_TIMEOUT;
        while self.waits_for_neighbours() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            for stream in &mut self.streams {
                stream.resolve(&mut self.machine);
            }
        }
    }

    /// Reads the machine's IPv4 addresses again; whether they have changed.
    fn follow_addresses(&mut self) -> bool {
        let Ok(sources) = self.machine.kernel_sources() else {
            return false;
        };
        let before = std::mem::replace(&mut self.kernel_sources, sources);
        before != self.kernel_sources
    }

    /// Takes over which subscribers the fast paths cannot send to any more, or can again.
    fn follow_userspace_only(&mut self) {
        for name in self.instances.keys().cloned().collect::<Vec<_>>() {
            if self.set_userspace_only(&name)
                && let Err(error) = self.apply_slow(&name)
            {
                tracing::warn!(datapath = name, %error, "does not follow the fast path");
            }
        }
    }

    /// Asks whether the kernel would let all packets of a stream through; whether the answer changed.
    fn ask_policy_of(&mut self, at: usize) -> bool {
        self.streams[at].ask_policy(&self.policy)
    }

    /// Takes over what changed on the machine: routes, neighbours, addresses, interfaces,
    /// subscribers whose time is over, datapaths that failed.
    fn follow(&mut self, extent: Extent) {
        let now = Instant::now();
        self.machine.refresh();
        let mut stale: Vec<String> = Vec::new();
        let mut devices = BTreeSet::new();
        let mut gone = Vec::new();
        for stream in &mut self.streams {
            let expired = |subscriber: &mut stream::Subscriber| {
                subscriber.expires.is_some_and(|at| at <= now)
            };
            let before = gone.len();
            gone.extend(stream.subscribers.extract_if(.., expired));
            let mut changed = gone.len() != before;
            changed |= stream.resolve(&mut self.machine);
            changed |= stream.follow(&mut self.machine);
            if changed {
                stale.extend(stream.place.datapath.clone());
                stream.policy_version = None;
                devices.extend(stream.devices());
            }
        }
        for subscriber in &gone {
            self.forget(subscriber);
        }
        if self.follow_addresses() {
            stale.extend(self.instances.keys().cloned());
        }
        match extent {
            Extent::NextHops => self.policy.refresh_devices(&devices),
            Extent::All => self.policy.refresh(),
        }
        for at in 0..self.streams.len() {
            let asked = self.streams[at].policy_version == Some(self.policy.version());
            if !asked && self.ask_policy_of(at) {
                stale.extend(self.streams[at].place.datapath.clone());
            }
        }
        self.follow_userspace_only();
        stale.extend(self.restartable());
        self.reattach();
        stale.sort();
        stale.dedup();
        for name in stale {
            if let Err(error) = self.apply(&name) {
                tracing::warn!(datapath = name, %error, "does not follow the machine");
            }
        }
    }
}

/// The next unused number below `limit`, going round.
fn free_slot(used: &[u32], next: &mut u32, limit: u32) -> Option<u32> {
    let slot = (0..limit)
        .map(|step| (*next + step) % limit)
        .find(|slot| !used.contains(slot))?;
    *next = (slot + 1) % limit;
    Some(slot)
}

fn full(what: &str, limit: u32) -> Error {
    Error::new(
        Kind::Conflict,
        format!("{limit} {what} already: no more fit"),
    )
}

/// The total counters of a stream, on the datapaths that it left and on its current ones.
fn total(past: &StreamCounters, present: impl Iterator<Item = StreamCounters>) -> StreamCounters {
    let mut total = past.clone();
    for counters in present {
        total.merge(&counters);
    }
    total
}

#[cfg(test)]
mod tests {
    use netdev::{LinkSpec, Netlink};
    use sys::netns::{self, Namespace};

    use super::{State, free_slot};

    /// Creates a namespace with `pairs` pairs of devices. The first device of pair N has the address 10.9.N.1.
    fn with_devices(pairs: u8) -> Option<(String, Namespace)> {
        if !sys::require::root() {
            return None;
        }
        let name = format!("lr-bed-{}-lookups", sys::owner::Owner::current());
        let namespace = Namespace::create(&name).unwrap();
        let add = || {
            let mut netlink = Netlink::new().unwrap();
            for pair in 0..pairs {
                let names = [format!("a{pair}"), format!("b{pair}")];
                let first = LinkSpec::new(&names[0]).up();
                netlink.add_veth(&first, &LinkSpec::new(&names[1])).unwrap();
                let ends = names
                    .each_ref()
                    .map(|name| netlink.link_by_name(name).unwrap().index);
                netlink
                    .set_link(ends[1], &LinkSpec::unnamed().up())
                    .unwrap();
                let address = [10, 9, pair, 1].into();
                netlink.add_addresses(&[(ends[0], address, 24)]).unwrap();
            }
        };
        namespace.run(add).unwrap();
        Some((name, namespace))
    }

    #[test]
    fn an_added_stream_costs_the_same_whatever_runs() {
        const STREAMS: u8 = 12;
        let Some((name, namespace)) = with_devices(STREAMS) else {
            return;
        };
        let add = || {
            let mut state = State::new(Vec::new(), || {}).unwrap();
            let mut costs = Vec::new();
            for stream in 0..STREAMS {
                let before = (state.machine.refreshes(), state.policy.device_reads());
                let spec = format!(
                    "{{\"name\":\"s{stream}\",\"listen\":\"10.9.{stream}.1:5004\",\"datapath\":\"recv\",\
                     \"source\":\"any\",\"interfaces\":[\"a{stream}\"],\
                     \"subscriber\":[{{\"name\":\"r\",\"to\":\"10.9.{stream}.2:6000\"}}]}}"
                );
                state
                    .add_stream(serde_json::from_str(&spec).unwrap())
                    .unwrap();
                let after = (state.machine.refreshes(), state.policy.device_reads());
                costs.push((after.0 - before.0, after.1 - before.1));
            }
            costs
        };
        let costs = namespace.run(add).unwrap();
        netns::remove(&name).unwrap();
        // The links and addresses once, and the traffic control of the one device that it uses.
        assert_eq!(costs, [(1, 1); STREAMS as usize]);
    }

    #[test]
    fn slots_go_round_and_skip_what_is_used() {
        let mut next = 0;
        assert_eq!(free_slot(&[], &mut next, 3), Some(0));
        assert_eq!(free_slot(&[0], &mut next, 3), Some(1));
        assert_eq!(free_slot(&[], &mut next, 3), Some(2));
        assert_eq!(free_slot(&[0], &mut next, 3), Some(1));
        assert_eq!(free_slot(&[0, 1, 2], &mut next, 3), None);
    }
}
