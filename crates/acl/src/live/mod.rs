//! A list of rules that changes while others look up.
//!
//! Updates are numbered. A batch of lookups answers from the list as it was after exactly one update,
//! the latest that was complete when the batch began. New rules are linked into a small hash table
//! beside the large one; a thread merges them into a new large one when they have become many.

mod chain;
mod delta;
mod merge;
mod moment;
mod version;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

use foldhash::fast::FixedState;

use crate::Simd;
use crate::address::Address;
use crate::build::{BuildReport, Options};
use crate::error::Error;
use crate::rule::{Key, Rule};
use delta::Changes;
use moment::{Moment, Moments};
use version::{Base, Version};

/// Maps of rule numbers: so many that none is large enough to take long to grow.
const SHARDS: usize = 1 << 10;

/// The list. Rules are known by their number; the lowest that matches comes first.
#[derive(Debug)]
pub struct Live<A: Address> {
    shared: Arc<Shared<A>>,
    merger: Option<JoinHandle<()>>,
}

/// Looks up in a [`Live`] list; each thread has its own.
#[derive(Debug)]
pub struct Reader<A: Address> {
    shared: Arc<Shared<A>>,
    moment: Moment,
    version: Arc<Version<A>>,
    stamp: u64,
    simd: Simd,
}

#[derive(Debug)]
struct Shared<A: Address> {
    /// Updates that are complete.
    time: AtomicU64,
    /// How often `version` has been replaced.
    stamp: AtomicU64,
    version: RwLock<Arc<Version<A>>>,
    writer: Mutex<Writer<A>>,
    /// The merger has something to do, or has done it.
    changed: Condvar,
}

/// Where the rule of a number is: in the delta of this generation, else in the base.
#[derive(Clone, Copy, Debug)]
struct Place {
    generation: u32,
    at: u32,
}

#[derive(Debug)]
struct Writer<A: Address> {
    /// What `Shared::version` holds.
    version: Arc<Version<A>>,
    /// Of the delta in which rules come in, and of the one that is being merged.
    active: Changes<A>,
    frozen: Option<Changes<A>>,
    moments: Moments,
    /// Of the active delta; that of the frozen one is one less.
    generation: u32,
    places: Vec<HashMap<u32, Place, FixedState>>,
    /// Deaths in what a merge reads: number and time.
    deaths: Vec<(u32, u64)>,
    /// Erased since the last merge began.
    erased: usize,
    wanted: bool,
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
            let place = Place {
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
            time: AtomicU64::new(1),
            stamp: AtomicU64::new(0),
            version: RwLock::new(Arc::clone(&version)),
            writer: Mutex::new(Writer {
                version,
                active,
                frozen: None,
                moments: Moments::default(),
                generation: 2,
                places,
                deaths: Vec::new(),
                erased: 0,
                wanted: false,
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
            writer.wanted = true;
            self.shared.changed.notify_all();
            writer = wait(&self.shared.changed, writer);
        }
        let time = self.shared.time.load(Ordering::Relaxed) + 1;
        let generation = writer.generation;
        let map = shard(&mut writer.places, number);
        if number == crate::NONE || map.contains_key(&number) {
            return Err(Error::Taken(number));
        }
        let Some(at) = writer.active.insert(number, rule, time) else {
            return Err(Error::Taken(number));
        };
        shard(&mut writer.places, number).insert(number, Place { generation, at });
        self.complete(writer, time);
        Ok(())
    }

    /// Takes a rule away; lookups that begin after the return do not see it.
    ///
    /// # Errors
    /// There is no rule of this number.
    pub fn erase(&self, number: u32) -> Result<(), Error> {
        let mut writer = self.shared.writer();
        let time = self.shared.time.load(Ordering::Relaxed) + 1;
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
                writer.deaths.push((number, time));
            }
        }
        writer.erased += 1;
        self.complete(writer, time);
        Ok(())
    }

    /// Lets lookups see update `time`, and wakes the merger when there is enough to merge.
    fn complete(&self, mut writer: MutexGuard<'_, Writer<A>>, time: u64) {
        self.shared.time.store(time, Ordering::Release);
        writer.bury(time);
        let changes = writer.active.delta().len() + writer.erased;
        let enough = 256.max(writer.version.base.rules.len() / 16);
        if changes >= enough && !writer.wanted && !writer.merging {
            writer.wanted = true;
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
            writer.wanted = true;
            self.shared.changed.notify_all();
            writer = wait(&self.shared.changed, writer);
        }
    }

    /// A way to look up, for one thread.
    pub fn reader(&self) -> Reader<A> {
        self.shared.reader()
    }

    /// What the latest build came to.
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
        let time = self.refresh();
        self.version.classify(self.simd, keys, time, found);
        self.moment.end();
        time - 1
    }

    /// The latest complete update, and a version that holds the list as it was then.
    fn refresh(&mut self) -> u64 {
        loop {
            let stamp = self.shared.stamp.load(Ordering::Acquire);
            if stamp != self.stamp {
                let version = self.shared.version.read();
                let version = version.unwrap_or_else(PoisonError::into_inner);
                self.version = Arc::clone(&version);
                // Read again under the lock: it belongs to this version.
                self.stamp = self.shared.stamp.load(Ordering::Acquire);
            }
            let time = self.moment.begin(&self.shared.time);
            if self.shared.stamp.load(Ordering::Acquire) == self.stamp {
                return time;
            }
        }
    }
}

impl<A: Address> Clone for Reader<A> {
    fn clone(&self) -> Self {
        self.shared.reader()
    }
}

impl<A: Address> Writer<A> {
    /// Takes rules out of chains that no lookup needs after update `time`.
    fn bury(&mut self, time: u64) {
        for changes in self.frozen.iter_mut().chain([&mut self.active]) {
            let Some(death) = changes.oldest_death() else {
                continue;
            };
            if death > self.moments.reached() {
                self.moments.look(time);
            }
            changes.bury(self.moments.reached());
        }
    }
}

impl<A: Address> Shared<A> {
    fn reader(self: &Arc<Self>) -> Reader<A> {
        let mut writer = self.writer();
        Reader {
            shared: Arc::clone(self),
            moment: writer.moments.add(),
            version: Arc::clone(&writer.version),
            // Not a stamp: the first batch looks for the latest version.
            stamp: u64::MAX,
            simd: Simd::widest(),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer<A>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a version the one that batches begin with from now on. Returns the one before.
    fn publish(&self, writer: &mut Writer<A>, version: Version<A>) -> Arc<Version<A>> {
        let version = Arc::new(version);
        let mut slot = self.version.write().unwrap_or_else(PoisonError::into_inner);
        *slot = Arc::clone(&version);
        self.stamp.fetch_add(1, Ordering::Release);
        drop(slot);
        std::mem::replace(&mut writer.version, version)
    }
}

fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

fn shard(
    places: &mut [HashMap<u32, Place, FixedState>],
    number: u32,
) -> &mut HashMap<u32, Place, FixedState> {
    let mixed = number.wrapping_mul(crate::address::MIX[0]) >> 22;
    &mut places[mixed as usize % SHARDS]
}
