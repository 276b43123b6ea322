//! Rules of both families on a device, and how often they matched. Another list is another one on the
//! device as well.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use acl::arena::{Arena, CHUNK};
use acl::{Address, Rule};
use gpu::{Buffer, Device};

use super::Error;
use crate::rules::{Hits, RuleSet};

/// Rules as a device looks them up.
#[derive(Debug)]
pub struct Lists {
    /// No other lists of this process have it.
    number: u64,
    lists: [List; 2],
    /// What threads have counted of each family: of each rule, and of none.
    hits: Mutex<[Vec<u64>; 2]>,
}

#[derive(Debug)]
struct List {
    arena: Buffer,
    rules: usize,
    bytes: usize,
    warnings: Vec<String>,
}

/// Where kernels count of each family.
#[derive(Debug)]
pub(super) struct OnDevice(pub(super) [Buffer; 2]);

/// One thread's counts of each family, of 32 bits each, which go on where they end.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) on_device: Arc<OnDevice>,
    seen: [Vec<u32>; 2],
}

impl Lists {
    pub(super) fn build(rules: &RuleSet, device: &Device) -> Result<Self, Error> {
        static BUILT: AtomicU64 = AtomicU64::new(0);
        Ok(Self {
            number: BUILT.fetch_add(1, Ordering::Relaxed),
            lists: [
                List::build(&rules.v4, device)?,
                List::build(&rules.v6, device)?,
            ],
            hits: Mutex::default(),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// IPv4's and IPv6's.
    pub(super) fn arenas(&self) -> [&Buffer; 2] {
        [&self.lists[0].arena, &self.lists[1].arena]
    }

    /// Bytes of the structures.
    pub(super) fn bytes(&self) -> usize {
        self.lists.iter().map(|list| list.bytes).sum()
    }

    /// What makes lookups slow, in words.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &String> {
        self.lists.iter().flat_map(|list| &list.warnings)
    }

    /// Of IPv4's list and of IPv6's, as far as threads have told.
    pub(super) fn hits(&self) -> [Hits; 2] {
        let told = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        let hits = |family: usize| {
            let mut rules = told[family].clone();
            rules.resize(self.lists[family].rules + 1, 0);
            let none = rules.pop().unwrap_or_default();
            Hits { rules, none }
        };
        [hits(0), hits(1)]
    }

    /// For a thread to count by.
    pub(super) fn count(&self, device: &Device) -> Result<Counts, Error> {
        let [v4, v6] = [0, 1].map(|family| self.lists[family].rules + 1);
        let zeroes = |numbers: usize| {
            let mut buffer = device.buffer(numbers * size_of::<u32>())?;
            device.write(&mut buffer, 0, &vec![0; numbers * size_of::<u32>()])?;
            Ok::<_, Error>(buffer)
        };
        Ok(Counts {
            on_device: Arc::new(OnDevice([zeroes(v4)?, zeroes(v6)?])),
            seen: [vec![0; v4], vec![0; v6]],
        })
    }

    /// Adds what a thread has counted since it last told. None of its batches is on the way.
    pub(super) fn tell(&self, counts: &mut Counts, device: &Device) -> Result<(), Error> {
        for (family, seen) in counts.seen.iter_mut().enumerate() {
            let mut bytes = vec![0; seen.len() * size_of::<u32>()];
            device.read(&counts.on_device.0[family], 0, &mut bytes)?;
            let mut told = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
            told[family].resize(seen.len(), 0);
            let (now, _) = bytes.as_chunks();
            for ((sum, seen), now) in told[family].iter_mut().zip(seen).zip(now) {
                let now = u32::from_le_bytes(*now);
                *sum += u64::from(now.wrapping_sub(*seen));
                *seen = now;
            }
        }
        Ok(())
    }
}

impl List {
    fn build<A: Address>(rules: &[Rule<A>], device: &Device) -> Result<Self, Error> {
        if rules.is_empty() {
            return Ok(Self {
                arena: on_device(&[0; CHUNK], device)?,
                rules: 0,
                bytes: 0,
                warnings: Vec::new(),
            });
        }
        // Shapes are compared by the speed of this machine's vectors.
        let options = acl::Options {
            tuning: std::time::Duration::ZERO,
        };
        let arena = Arena::build(rules, options, 0)?;
        Ok(Self {
            arena: on_device(arena.bytes(), device)?,
            rules: rules.len(),
            bytes: arena.bytes().len(),
            warnings: arena.report().warnings.clone(),
        })
    }
}

fn on_device(bytes: &[u8], device: &Device) -> Result<Buffer, Error> {
    let mut buffer = device.buffer(bytes.len())?;
    device.write(&mut buffer, 0, bytes)?;
    Ok(buffer)
}
