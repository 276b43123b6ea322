//! A list of rules that changes while others look up.
//!
//! Updates are numbered. A batch of lookups answers from the list as it was after exactly one update,
//! the latest that was complete when the batch began. New rules are linked into a small hash table
//! beside the large one; a thread merges them into a new large one when they have become many.

mod chain;
mod delta;
mod merge;
mod version;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use foldhash::fast::FixedState;
use rcu::{Domain, Publisher, Snapshot};

use crate::Simd;
use crate::address::Address;
use crate::build::{BuildReport, Options};
use crate::error::Error;
use crate::rule::{Key, Rule};
use delta::Changes;
use version::{Base, Version};

/// The number of maps of rule numbers: enough to keep each small, so that none takes long to grow.
const SHARDS: usize = 1 << 10;
/// Updates between looks at the readers' epochs, each of which may be a cache miss.
const REACHED_INTERVAL: u32 = 16;

/// The list. Rules are known by their number; the lowest that matches comes first.
#[derive(Debug)]
pub struct Live<A: Address> {
    shared: Arc<Shared<A>>,
    merger: Option<JoinHandle<()>>,
}

/// Looks up in a [`Live`] list; each thread has its own.
#[derive(Clone, Debug)]
pub struct Reader<A: Address> {
    epochs: rcu::Reader,
    version: Snapshot<Version<A>>,
    simd: Simd,
}

#[derive(Debug)]
struct Shared<A: Address> {
    version: Publisher<Version<A>>,
    writer: Mutex<Writer<A>>,
    /// The merger has something to do, or has done it.
    changed: Condvar,
}

/// Where the rule of a number is: in the delta of this generation, or in the base.
#[derive(Clone, Copy, Debug)]
struct RuleLocation {
    generation: u32,
    at: u32,
}

#[derive(Debug)]
struct Writer<A: Address> {
    /// The value of `Shared::version`.
    version: Arc<Version<A>>,
    /// The delta that new rules go into, and the one that is being merged.
    active: Changes<A>,
    frozen: Option<Changes<A>>,
    /// Its epochs are the updates that are complete, and one more.
    domain: Domain,
    /// The update that all readers had reached at the last check, and updates since.
    reached: u64,
    since_reached: u32,
    /// The generation of the active delta. That of the frozen one is one less.
    generation: u32,
    places: Vec<HashMap<u32, RuleLocation, FixedState>>,
    /// Erasures of what a merge reads: number and update.
    erasures: Vec<(u32, u64)>,
    /// Erased since the last merge began.
    erased: usize,
    merge_requested: bool,
    merging: bool,
    closing: bool,
    merges: u64,
}

impl<A: Address> Live<A> {
    /// A list of these rules.
    ///
    /// # Errors
    /// Two rules of one number, or what a build may meet.
    pub fn new(mut rules: Vec<(u32, Rule<A>)>, options: Options) -> Result<Self, Error> {
        rules.sort_by_key(|(number, _)| *number);
        let mut places = vec![HashMap::default(); SHARDS];
        for (number, _) in &rules {
            let place = RuleLocation {
                generation: 0,
                at: 0,
            };
            if shard(&mut places, *number).insert(*number, place).is_some() {
                return Err(Error::Taken(*number));
            }
        }
        let (numbers, rules) = rules.into_iter().unzip();
        let active = Changes::new()?;
        let version = Arc::new(Version {
            base: Arc::new(Base::build(rules, numbers, options)?),
            frozen: None,
            active: Arc::clone(active.delta()),
        });
        let shared = Arc::new(Shared {
            version: Publisher::new(Arc::clone(&version)),
            writer: Mutex::new(Writer {
                version,
                active,
                frozen: None,
                domain: Domain::new(),
                reached: 0,
                since_reached: 0,
                generation: 2,
                places,
                erasures: Vec::new(),
                erased: 0,
                merge_requested: false,
                merging: false,
                closing: false,
                merges: 0,
            }),
            changed: Condvar::new(),
        });
        let merger = merge::start(Arc::clone(&shared))?;
        Ok(Self {
            shared,
            merger: Some(merger),
        })
    }

    /// Inserts a rule; lookups that begin after the return see it. Waits for a merge when a million
    /// rules have come in faster than merges took them.
    ///
    /// # Errors
    /// The number is taken.
    pub fn insert(&self, number: u32, rule: Rule<A>) -> Result<(), Error> {
        let mut writer = self.shared.writer();
        while writer.active.delta().len() == delta::CAPACITY {
            writer.merge_requested = true;
            self.shared.changed.notify_all();
            writer = wait(&self.shared.changed, writer);
        }
        let time = writer.domain.epoch() + 1;
        let generation = writer.generation;
        let map = shard(&mut writer.places, number);
        if number == crate::NONE || map.contains_key(&number) {
            return Err(Error::Taken(number));
        }
        let Some(at) = writer.active.insert(number, rule, time) else {
            return Err(Error::Taken(number));
        };
        shard(&mut writer.places, number).insert(number, RuleLocation { generation, at });
        self.commit(writer);
        Ok(())
    }

    /// Takes a rule away; lookups that begin after the return do not see it.
    ///
    /// # Errors
    /// There is no rule of this number.
    pub fn erase(&self, number: u32) -> Result<(), Error> {
        let mut writer = self.shared.writer();
        let time = writer.domain.epoch() + 1;
        let place = shard(&mut writer.places, number).remove(&number);
        let place = place.ok_or(Error::Absent(number))?;
        let age = writer.generation - place.generation;
        if age == 0 {
            writer.active.erase(place.at, time);
        } else {
            match &mut writer.frozen {
                Some(frozen) if age == 1 => frozen.erase(place.at, time),
                _ => writer.version.base.erase(number, time),
            }
            if writer.merging {
                writer.erasures.push((number, time));
            }
        }
        writer.erased += 1;
        self.commit(writer);
        Ok(())
    }

    /// Lets lookups see an update, and wakes the merger when there is enough to merge.
    fn commit(&self, mut writer: MutexGuard<'_, Writer<A>>) {
        writer.domain.advance();
        writer.unlink_erased();
        let changes = writer.active.delta().len() + writer.erased;
        let enough = 256.max(writer.version.base.rules.len() / 16);
        if changes >= enough && !writer.merge_requested && !writer.merging {
            writer.merge_requested = true;
            drop(writer);
            self.shared.changed.notify_all();
        }
    }

    /// Merges all that has changed so far, and waits for it.
    pub fn merge(&self) {
        let mut writer = self.shared.writer();
        // A merge that is under way may have begun before the latest change.
        let goal = writer.merges + 1 + u64::from(writer.merging);
        while writer.merges < goal {
            writer.merge_requested = true;
            self.shared.changed.notify_all();
            writer = wait(&self.shared.changed, writer);
        }
    }

    /// A way to look up, for one thread.
    pub fn reader(&self) -> Reader<A> {
        Reader {
            epochs: self.shared.writer().domain.reader(),
            version: self.shared.version.snapshot(),
            simd: Simd::widest(),
        }
    }

    /// The report of the latest build.
    pub fn report(&self) -> BuildReport {
        self.shared.writer().version.base.report.clone()
    }
}

impl<A: Address> Drop for Live<A> {
    fn drop(&mut self) {
        self.shared.writer().closing = true;
        self.shared.changed.notify_all();
        if let Some(merger) = self.merger.take() {
            // A merger that panicked has nothing left to say.
            let _ended = merger.join();
        }
    }
}

impl<A: Address> Reader<A> {
    /// Writes the number of each key's first rule, or [`NONE`](crate::NONE), all after the same
    /// update; returns how many updates that were. It holds the memory of the version it last read.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn classify(&mut self, keys: &[Key<A>], found: &mut [u32]) -> u64 {
        self.version.refresh();
        let guard = self.epochs.pin();
        let mut time = guard.epoch();
        // The version must hold the list as it was after that update.
        while self.version.refresh() {
            time = guard.epoch();
        }
        self.version.get().classify(self.simd, keys, time, found);
        time - 1
    }
}

impl<A: Address> Writer<A> {
    /// Unlinks erased rules that no lookup needs any more.
    fn unlink_erased(&mut self) {
        for changes in self.frozen.iter_mut().chain([&mut self.active]) {
            let Some(erasure) = changes.oldest_erasure() else {
                continue;
            };
            if erasure > self.reached {
                self.since_reached += 1;
                if self.since_reached >= REACHED_INTERVAL {
                    self.since_reached = 0;
                    self.reached = self.domain.reached();
                }
            }
            changes.unlink_erased(self.reached);
        }
    }
}

impl<A: Address> Shared<A> {
    fn writer(&self) -> MutexGuard<'_, Writer<A>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a version the one that batches begin with from now on. Returns the one before.
    fn publish(&self, writer: &mut Writer<A>, version: Version<A>) -> Arc<Version<A>> {
        writer.version = Arc::new(version);
        self.version.publish(Arc::clone(&writer.version))
    }
}

fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

fn shard(
    places: &mut [HashMap<u32, RuleLocation, FixedState>],
    number: u32,
) -> &mut HashMap<u32, RuleLocation, FixedState> {
    let mixed = number.wrapping_mul(crate::address::MIX[0]) >> 22;
    &mut places[mixed as usize % SHARDS]
}
