//! The rules in force, which the program reads as arrays that are exchanged whole.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use acl::arena::{Arena, CHUNK};
use acl::{Address, Rule};
use bpf::Map;
use libbpf_rs::libbpf_sys::{BPF_F_INNER_MAP, BPF_F_MMAPABLE, bpf_map_create_opts};
use libbpf_rs::{MapHandle, MapType};
use sys::huge::{Array, Region};

use super::{Error, entries};
use crate::forward::Cleanup;
use crate::rules::{Hits, RuleSet};
use crate::skel::router::RouterSkel;

#[derive(Debug)]
pub(super) struct Filter {
    acls: Map<u32, i32>,
    /// Of each family: 0 without rules, else which of two arrays, from 1. Then [`SOLE_FILTER`].
    in_force: Array<AtomicU64>,
    lists: [Option<List>; 2],
    cpus: usize,
}

/// The place of a bit for each family whose rules the kernel lacks: `ACL_SOLE_FILTER` of bpf/acl.h.
const SOLE_FILTER: usize = 2;

/// Rules of both families, as the program reads them.
#[derive(Debug)]
pub struct Lists([Option<List>; 2]);

/// A list as the program reads it.
#[derive(Debug)]
struct List {
    arena: Arena,
    memory: Array<AtomicU64>,
    map: MapHandle,
}

impl Filter {
    pub(super) fn new(skel: &RouterSkel<'_>) -> Result<Self, Error> {
        Ok(Self {
            acls: Map::new(&skel.maps.acls)?,
            in_force: mapped(&skel.maps.acl_in_force, "acl_in_force", CHUNK)?,
            lists: [None, None],
            cpus: libbpf_rs::num_possible_cpus().map_err(Error::kernel("counting CPUs"))?,
        })
    }

    pub(super) fn cpus(&self) -> usize {
        self.cpus
    }

    /// Each family's list takes its predecessor's place at once. Counting begins anew. What remains is to
    /// wait until no program reads the predecessors, and to give them up.
    pub(super) fn set(&mut self, Lists(lists): Lists) -> Result<Cleanup, Error> {
        let before: Vec<u64> = (0..2).map(|family| self.turn(family)).collect();
        // The one that is not in force: since it last was, a grace period has passed.
        let next = |family: usize| if before[family] == 1 { 2 } else { 1 };
        for (family, list) in lists.iter().enumerate() {
            if let Some(list) = list {
                let slot = entries::acl_slot(family, next(family));
                self.acls.set_descriptor(&slot, &list.map)?;
            }
        }
        let acls = self.acls.try_clone()?;
        for (family, list) in lists.iter().enumerate() {
            let turn = if list.is_some() { next(family) } else { 0 };
            self.in_force[family].store(turn, Ordering::Release);
        }
        let lists = std::mem::replace(&mut self.lists, lists);
        Ok(Box::new(move || {
            super::wait_or_sleep();
            for (family, turn) in before.into_iter().enumerate() {
                // It takes memory until it is overwritten.
                if turn != 0
                    && let Err(error) = acls.remove(&entries::acl_slot(family, turn))
                {
                    tracing::warn!("{error}");
                }
            }
            drop(lists);
        }))
    }

    /// Says of which families the kernel lacks rules that drop packets.
    pub(super) fn set_sole_filter(&self, sole_filter: [bool; 2]) {
        let bits = u64::from(sole_filter[0]) | u64::from(sole_filter[1]) << 1;
        self.in_force[SOLE_FILTER].store(bits, Ordering::Release);
    }

    pub(super) fn sole_filter(&self) -> [bool; 2] {
        let bits = self.in_force[SOLE_FILTER].load(Ordering::Relaxed);
        [bits & 1 != 0, bits & 2 != 0]
    }

    /// Of IPv4's list and of IPv6's.
    pub(super) fn hits(&self) -> [Hits; 2] {
        let hits = |list: &Option<List>| {
            let list = list.as_ref();
            list.map_or_else(Hits::default, |list| list.hits(self.cpus))
        };
        [hits(&self.lists[0]), hits(&self.lists[1])]
    }

    fn turn(&self, family: usize) -> u64 {
        self.in_force[family].load(Ordering::Relaxed)
    }
}

impl Lists {
    pub(super) fn build(rules: &RuleSet, cpus: usize) -> Result<Self, Error> {
        let v4 = List::build(&rules.v4, cpus)?;
        Ok(Self([v4, List::build(&rules.v6, cpus)?]))
    }
}

impl List {
    /// None of an empty list.
    fn build<A: Address>(rules: &[Rule<A>], cpus: usize) -> Result<Option<Self>, Error> {
        if rules.is_empty() {
            return Ok(None);
        }
        // Shapes are compared by the speed of vectors, which the program has not.
        let options = acl::Options {
            tuning: Duration::ZERO,
        };
        let arena = Arena::build(rules, options, cpus)?;
        for warning in &arena.report().warnings {
            tracing::warn!(warning, "packets that meet these rules take long");
        }
        let bytes = arena.bytes();
        let map = create(bytes.len())?;
        let memory = mapped(&map, "acl", bytes.len())?;
        let (words, _) = bytes.as_chunks::<8>();
        for (cell, word) in memory.iter().zip(words) {
            cell.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        Ok(Some(Self { arena, memory, map }))
    }

    fn hits(&self, cpus: usize) -> Hits {
        let mut rules = vec![0; self.arena.rules() + 1];
        for cpu in 0..cpus {
            let start = self.arena.counters(cpu) / size_of::<u64>();
            for (sum, count) in rules.iter_mut().zip(&self.memory[start..]) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        let none = rules.pop().unwrap_or_default();
        Hits { rules, none }
    }
}

/// A map such as the program's declaration of `acl_map` says, but for its length.
fn create(bytes: usize) -> Result<MapHandle, Error> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as u64,
        map_flags: BPF_F_MMAPABLE | BPF_F_INNER_MAP,
        ..Default::default()
    };
    let (size, entries) = (entries::CHUNK_SIZE, entries::chunks(bytes));
    MapHandle::create(MapType::Array, Some("acl"), 4, size, entries, &options)
        .map_err(Error::kernel(format!("{bytes} bytes for the rules")))
}

fn mapped(map: impl AsFd, table: &str, bytes: usize) -> Result<Array<AtomicU64>, Error> {
    Region::shared(map.as_fd(), bytes)
        .and_then(|region| Array::within(region, bytes / size_of::<u64>()))
        .map_err(|source| Error::Map {
            table: table.to_owned(),
            source,
        })
}
