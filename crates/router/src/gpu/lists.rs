//! Rules of both families on a device, and their hit counts. New rules are uploaded as new lists.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use acl::arena::{Arena, CHUNK};
use acl::{Address, Rule};
use gpu::{Buffer, Device};

use super::Error;
use crate::rules::{Hits, RuleSet};

/// Rules for lookups on a device.
#[derive(Debug)]
pub struct Lists {
    /// Unique in this process.
    number: u64,
    lists: [List; 2],
    /// Hits reported by threads, by family: one for each rule, the last for packets that no rule matched.
    hits: Mutex<[Vec<u64>; 2]>,
}

#[derive(Debug)]
struct List {
    arena: Buffer,
    rules: usize,
    bytes: usize,
    warnings: Vec<String>,
}

/// Buffers in which kernels count hits, by family.
#[derive(Debug)]
pub(super) struct HitBuffers(pub(super) [Buffer; 2]);

/// One thread's counters by family. They have 32 bits and wrap around.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) buffers: Arc<HitBuffers>,
    read: [Vec<u32>; 2],
}

impl Lists {
    pub(super) fn build(rules: &RuleSet, device: &Device) -> Result<Self, Error> {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
        Ok(Self {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
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

    /// The lists of IPv4 and IPv6.
    pub(super) fn arenas(&self) -> [&Buffer; 2] {
        [&self.lists[0].arena, &self.lists[1].arena]
    }

    /// Bytes of the structures.
    pub(super) fn bytes(&self) -> usize {
        self.lists.iter().map(|list| list.bytes).sum()
    }

    /// Reasons for slow lookups.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &String> {
        self.lists.iter().flat_map(|list| &list.warnings)
    }

    /// Hits of IPv4's and of IPv6's list that threads have reported.
    pub(super) fn hits(&self) -> [Hits; 2] {
        let hits_total = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        let hits = |family: usize| {
            let mut rules = hits_total[family].clone();
            rules.resize(self.lists[family].rules + 1, 0);
            let none = rules.pop().unwrap_or_default();
            Hits { rules, none }
        };
        [hits(0), hits(1)]
    }

    /// Counters for another thread.
    pub(super) fn count(&self, device: &Device) -> Result<Counts, Error> {
        let [v4, v6] = [0, 1].map(|family| self.lists[family].rules + 1);
        let zeroes = |numbers: usize| {
            let mut buffer = device.buffer(numbers * size_of::<u32>())?;
            device.write(&mut buffer, 0, &vec![0; numbers * size_of::<u32>()])?;
            Ok::<_, Error>(buffer)
        };
        Ok(Counts {
            buffers: Arc::new(HitBuffers([zeroes(v4)?, zeroes(v6)?])),
            read: [vec![0; v4], vec![0; v6]],
        })
    }

    /// Adds a thread's hits since its last report. None of its batches may be in flight.
    pub(super) fn add_hits(&self, counts: &mut Counts, device: &Device) -> Result<(), Error> {
        for (family, read) in counts.read.iter_mut().enumerate() {
            let mut bytes = vec![0; read.len() * size_of::<u32>()];
            device.read(&counts.buffers.0[family], 0, &mut bytes)?;
            let mut hits_total = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
            hits_total[family].resize(read.len(), 0);
            let (now, _) = bytes.as_chunks();
            for ((sum, read), now) in hits_total[family].iter_mut().zip(read).zip(now) {
                let now = u32::from_le_bytes(*now);
                *sum += u64::from(now.wrapping_sub(*read));
                *read = now;
            }
        }
        Ok(())
    }
}

impl List {
    fn build<A: Address>(rules: &[Rule<A>], device: &Device) -> Result<Self, Error> {
        if rules.is_empty() {
            return Ok(Self {
                arena: upload(&[0; CHUNK], device)?,
                rules: 0,
                bytes: 0,
                warnings: Vec::new(),
            });
        }
        // Tuning would compare table shapes by the speed of this machine's vector units.
        let options = acl::Options {
            tuning: std::time::Duration::ZERO,
        };
        let arena = Arena::build(rules, options, 0)?;
        Ok(Self {
            arena: upload(arena.bytes(), device)?,
            rules: rules.len(),
            bytes: arena.bytes().len(),
            warnings: arena.report().warnings.clone(),
        })
    }
}

fn upload(bytes: &[u8], device: &Device) -> Result<Buffer, Error> {
    let mut buffer = device.buffer(bytes.len())?;
    device.write(&mut buffer, 0, bytes)?;
    Ok(buffer)
}
