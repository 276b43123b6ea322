//! Rules that came since the table was built: chains in a hash table, which one writer extends while
//! others walk them.
//!
//! A rule's chain is that of its cell, a pair of shortened prefix lengths and whether its destination
//! port is one, and of the bits that the cell keeps. An erased rule gets the number of the erasing update.
//! It leaves its chain when no lookup needs it any more.

#![expect(
    clippy::cast_possible_truncation,
    reason = "places below a capacity that fits"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rcu::LimboList;

use crate::Simd;
use crate::address::{Address, MIX};
use crate::error::Error;
use crate::lookup::with_simd;
use crate::rule::{Key, NONE, Rule};

use super::chain::{ChainWriter, Chains};

/// Prefix lengths of cells: few, because every lookup probes each cell that has rules.
const STEPS: usize = 3;
const STEPS4: [u8; STEPS] = [0, 16, 24];
const STEPS6: [u8; STEPS] = [0, 32, 48];
const CELLS: usize = STEPS * STEPS * 2;
/// Rules that a delta holds.
pub(super) const CAPACITY: usize = 1 << 20;
/// Maximum number of erased rules that one update unlinks.
const UNLINKS_PER_UPDATE: usize = 4;
/// Packets that are looked up together.
const BATCH: usize = 32;

/// A rule in a chain. Only `erased_at` changes after the insertion.
#[derive(Debug)]
pub(super) struct Link<A: Address> {
    pub(super) rule: Rule<A>,
    pub(super) number: u32,
    /// The update that inserted the rule.
    inserted_at: u64,
    /// The update that erased the rule, or 0.
    erased_at: AtomicU64,
}

impl<A: Address> Link<A> {
    /// Whether it is there after update `time`.
    pub(super) fn is_live(&self, time: u64) -> bool {
        let erased_at = self.erased_at.load(Ordering::Acquire);
        self.inserted_at <= time && (erased_at == 0 || erased_at > time)
    }
}

#[derive(Debug)]
pub(super) struct Delta<A: Address> {
    chains: Arc<Chains<Link<A>>>,
    /// The lowest number ever in each cell.
    best: [AtomicU32; CELLS],
}

/// The one writer of a delta.
#[derive(Debug)]
pub(super) struct Changes<A: Address> {
    delta: Arc<Delta<A>>,
    writer: ChainWriter<Link<A>>,
    /// Rules that are erased and still in their chains, by update.
    erased: LimboList<ErasedLink>,
}

#[derive(Debug)]
struct ErasedLink {
    hash: u32,
    at: u32,
}

/// The prefix lengths of a cell.
fn lengths<A: Address>(cell: usize) -> (u8, u8) {
    let steps = if A::BITS == 32 { STEPS4 } else { STEPS6 };
    (steps[cell / 2 / STEPS], steps[cell / 2 % STEPS])
}

fn cell_of<A: Address>(rule: &Rule<A>) -> usize {
    let steps = if A::BITS == 32 { STEPS4 } else { STEPS6 };
    let level = |length| steps.iter().filter(|&&step| step <= length).count() - 1;
    let pair = level(rule.source.len()) * STEPS + level(rule.destination.len());
    let ports = &rule.destination_ports;
    2 * pair + usize::from(ports.start() == ports.end())
}

#[inline(always)]
fn hash<A: Address>(cell: usize, lengths: (u8, u8), source: A, destination: A, port: u16) -> u32 {
    let port = if cell % 2 == 1 { u32::from(port) } else { 0 };
    let mixed = (cell as u32) << 16 | port;
    let sum = A::mix(source, destination, lengths) ^ mixed.wrapping_mul(MIX[0]);
    (sum ^ sum >> 15).wrapping_mul(MIX[1])
}

/// The chain of a rule.
fn hash_of<A: Address>(rule: &Rule<A>) -> (usize, u32) {
    let cell = cell_of(rule);
    let (source, destination) = (rule.source.first(), rule.destination.first());
    let port = *rule.destination_ports.start();
    let hash = hash(cell, lengths::<A>(cell), source, destination, port);
    (cell, hash)
}

impl<A: Address> Changes<A> {
    pub(super) fn new() -> Result<Self, Error> {
        let writer = ChainWriter::new(CAPACITY)?;
        let delta = Arc::new(Delta {
            chains: Arc::clone(writer.chains()),
            best: [const { AtomicU32::new(NONE) }; CELLS],
        });
        let erased = LimboList::new();
        Ok(Self {
            delta,
            writer,
            erased,
        })
    }

    /// For lookups.
    pub(super) fn delta(&self) -> &Arc<Delta<A>> {
        &self.delta
    }

    /// Links a rule, seen by lookups of update `time` and later; `None` when there is no room.
    pub(super) fn insert(&mut self, number: u32, rule: Rule<A>, time: u64) -> Option<u32> {
        let (cell, hash) = hash_of(&rule);
        let link = Link {
            rule,
            number,
            inserted_at: time,
            erased_at: AtomicU64::new(0),
        };
        let at = self.writer.push(hash, link)?;
        self.delta.best[cell].fetch_min(number, Ordering::Release);
        Some(at)
    }

    /// Takes a rule away from lookups of update `time` and later.
    pub(super) fn erase(&mut self, at: u32, time: u64) {
        let link = self.delta.chains.get(at);
        link.erased_at.store(time, Ordering::Release);
        let (_, hash) = hash_of(&link.rule);
        self.erased.push(time, ErasedLink { hash, at });
    }

    /// The update of the oldest erasure whose rule is still in its chain.
    pub(super) fn oldest_erasure(&self) -> Option<u64> {
        self.erased.first_epoch()
    }

    /// Unlinks some rules that were erased by update `time`, which every lookup has reached.
    pub(super) fn unlink_erased(&mut self, time: u64) {
        for _ in 0..UNLINKS_PER_UPDATE {
            let Some(erased) = self.erased.pop(time) else {
                return;
            };
            self.writer.unlink(erased.hash, erased.at);
        }
    }
}

impl<A: Address> Delta<A> {
    /// Rules that came, gone ones too.
    pub(super) fn len(&self) -> usize {
        self.chains.len()
    }

    /// Every rule that came.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link<A>> {
        (0..self.chains.len() as u32).map(|at| self.chains.get(at))
    }

    /// Lowers the numbers found to those of rules that come before them, after update `time`.
    pub(super) fn improve(&self, simd: Simd, keys: &[Key<A>], time: u64, found: &mut [u32]) {
        if self.len() == 0 {
            return;
        }
        let best = self
            .best
            .each_ref()
            .map(|best| best.load(Ordering::Acquire));
        let keys = keys.chunks(BATCH);
        for (keys, found) in keys.zip(found.chunks_mut(BATCH)) {
            let columns = Columns::of(keys);
            for (cell, &best) in best.iter().enumerate().filter(|(_, best)| **best != NONE) {
                let hashes = with_simd(simd, || columns.hashes(cell, lengths::<A>(cell)));
                self.improve_cell(&hashes, best, keys, time, found);
            }
        }
    }

    /// Heads, then chains, so that cache misses overlap.
    fn improve_cell(
        &self,
        hashes: &[u32; BATCH],
        best: u32,
        keys: &[Key<A>],
        time: u64,
        found: &mut [u32],
    ) {
        let (mut met, mut count) = ([(0, NONE); BATCH], 0);
        for (number, (hash, found)) in hashes.iter().zip(&*found).enumerate() {
            if self.chains.any(*hash) && best < *found {
                let head = self.chains.head(*hash);
                self.chains.prefetch(head);
                met[count] = (number, head);
                count += 1;
            }
        }
        for &(number, head) in &met[..count] {
            let mut at = head;
            while at != NONE {
                let link = self.chains.get(at);
                let better = link.number < found[number];
                if better && link.is_live(time) && link.rule.matches(&keys[number]) {
                    found[number] = link.number;
                }
                at = self.chains.next(at);
            }
        }
    }
}

/// The inputs of hashes for a batch of packets.
struct Columns<A> {
    sources: [A; BATCH],
    destinations: [A; BATCH],
    ports: [u16; BATCH],
}

impl<A: Address> Columns<A> {
    fn of(keys: &[Key<A>]) -> Self {
        let mut columns = Self {
            sources: [A::default(); BATCH],
            destinations: [A::default(); BATCH],
            ports: [0; BATCH],
        };
        for (number, key) in keys.iter().enumerate().take(BATCH) {
            columns.sources[number] = key.source();
            columns.destinations[number] = key.destination();
            columns.ports[number] = key.destination_port();
        }
        columns
    }

    #[inline(always)]
    fn hashes(&self, cell: usize, lengths: (u8, u8)) -> [u32; BATCH] {
        let mut hashes = [0; BATCH];
        for (number, hashed) in hashes.iter_mut().enumerate() {
            let (source, destination) = (self.sources[number], self.destinations[number]);
            *hashed = hash(cell, lengths, source, destination, self.ports[number]);
        }
        hashes
    }
}
