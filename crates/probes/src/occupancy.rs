//! Which processes held the CPUs: runs in every trial, to find neighbours that disturbed it.
//!
//! It decides who ran for how long; who was allowed to is the caller's to say.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::thread;

use bpf::{Batch, Cursor, Map, PerCpu, Plain as _};
use datapath::Missing;
use libbpf_rs::{ErrorKind, Link};
use netdev::requirement;

use crate::Error;

bpf::skeleton!(mod skel = "foreign");

use skel::types;

/// Pairs of a process and a CPU that it ran on, between two calls of [`OccupancyProbe::forget`]. A trial meets
/// hundreds; one that meets more than this is told so by what is unknown.
const MAX_ENTRIES: u32 = 1 << 14;

/// The attached counter. Dropping it detaches it.
#[derive(Debug)]
pub struct OccupancyProbe {
    occupants: PerCpu<types::occupant>,
    occupancies: Map<types::place, types::occupancy>,
    /// The kernel's number of possible CPUs: CPU numbers are lower.
    cpus: usize,
    _link: Link,
}

/// How long processes held CPUs since the counter was attached, or told to forget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// By process id. Idle time and the kernel's own threads are left out.
    pub processes: BTreeMap<u32, Process>,
    /// Unattributed nanoseconds by CPU, since the counter was attached: a switch was not seen, or there were
    /// too many processes.
    pub unknown_ns: Vec<u64>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub comm: String,
    /// Nanoseconds by CPU, interrupts that came meanwhile included.
    pub ns: Vec<u64>,
}

impl OccupancyProbe {
    /// # Errors
    /// [`Error::Missing`] without the privileges, or what the kernel refuses.
    pub fn attach() -> Result<Self, Error> {
        Self::with_capacity(MAX_ENTRIES)
    }

    /// Makes room for `pairs` pairs of a process and a CPU.
    fn with_capacity(pairs: u32) -> Result<Self, Error> {
        requirement::check(crate::TRACING)?;
        let mut storage = MaybeUninit::uninit();
        let failed = "loading the foreign CPU counter";
        let builder = skel::ForeignSkelBuilder::default();
        let skel = bpf::load(builder, &mut storage, "the foreign CPU counter", |open| {
            let sized = open.maps.occupancies.set_max_entries(pairs);
            sized.map_err(Error::bpf(failed))
        })?;
        Ok(Self {
            occupants: PerCpu::new(&skel.maps.occupants)?,
            occupancies: Map::new(&skel.maps.occupancies)?,
            cpus: libbpf_rs::num_possible_cpus().map_err(Error::bpf(failed))?,
            _link: skel
                .progs
                .note_switch
                .attach_trace()
                .map_err(Error::bpf("attaching to sched_switch"))?,
        })
    }

    /// Lets go of everything counted so far: processes that have ended would fill the table in time, and it
    /// would go blind. What is unknown stays. Snapshots before and after it cannot be compared.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget(&self) -> Result<(), Error> {
        let (mut cursor, mut batch) = (Cursor::default(), self.batch());
        while self
            .occupancies
            .take_batch(&mut cursor, &mut batch)
            .map_err(explain("emptying the table of processes"))?
        {}
        Ok(())
    }

    /// Everything counted so far, what runs now included. Takes a moment on each CPU.
    pub fn snapshot(&self) -> Result<Occupancy, Error> {
        switch_everywhere(self.cpus);
        let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
        let (mut cursor, mut batch) = (Cursor::default(), self.batch());
        loop {
            let more = self.occupancies.read_batch(&mut cursor, &mut batch);
            let more = more.map_err(explain("reading the table of processes"))?;
            for (place, occupancy) in batch.entries() {
                let process = processes.entry(place.tgid).or_default();
                process.add_entry(place.cpu as usize, occupancy);
            }
            if !more {
                break;
            }
        }
        let current = self.occupants.values(0)?;
        let at_ns = sys::clock::monotonic_ns();
        let mut unknown_ns = vec![0; current.len()];
        for (cpu, occupant) in current.iter().enumerate() {
            unknown_ns[cpu] = occupant.unknown_ns;
            if occupant.since_ns == 0 || occupant.tgid == 0 {
                continue;
            }
            let process = processes.entry(occupant.tgid).or_default();
            process.add(cpu, at_ns.saturating_sub(occupant.since_ns));
        }
        Ok(Occupancy {
            at_ns,
            processes,
            unknown_ns,
        })
    }

    /// Room for all entries in one call: one for each would take longer than what is watched.
    fn batch(&self) -> Batch<types::place, types::occupancy> {
        Batch::new(self.occupancies.max_entries())
    }
}

/// Why entries could not be read. A kernel without batches does not know the call, or not for hash maps.
fn explain(action: &'static str) -> impl FnOnce(bpf::Error) -> Error {
    move |error| match error.source.kind() {
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Other => {
            Error::Missing(Missing::new(
                "this kernel reads no hash map in batches",
                "run Linux 6.1 or later",
            ))
        }
        _ => Error::bpf(action)(error),
    }
}

/// Makes every CPU switch tasks. Where a kernel hides switches, what has run since the last one that
/// was seen is known only once another is.
fn switch_everywhere(cpus: usize) {
    let visit = || {
        for cpu in 0..cpus {
            // A CPU that this process may not use, or that is not there, is not in the account of its trials either.
            let _refused = sys::sched::pin(cpu);
        }
    };
    // A thread of its own, as it ends up where it was pinned last; it cannot panic.
    thread::scope(|scope| {
        scope.spawn(visit);
    });
}

impl Occupancy {
    /// Each process outside `allowed` that ran since `before`, longest first, by its nanoseconds
    /// on `cpus`.
    pub fn foreign(&self, before: &Self, allowed: &[u32], cpus: &[usize]) -> Vec<(String, u64)> {
        let mut foreign: Vec<(String, u64)> = self
            .processes
            .iter()
            .filter(|(id, _)| !allowed.contains(id))
            .map(|(id, process)| {
                let then = before.processes.get(id);
                let on = |cpu: &usize| {
                    let now = process.ns.get(*cpu).copied().unwrap_or(0);
                    let then = then.and_then(|then| then.ns.get(*cpu)).copied();
                    now.saturating_sub(then.unwrap_or(0))
                };
                (
                    format!("{} ({id})", process.comm),
                    cpus.iter().map(on).sum(),
                )
            })
            .filter(|(_, ns)| *ns > 0)
            .collect();
        foreign.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        foreign
    }

    /// Unattributed time since `before`, as a percentage of the time of `cpus`.
    pub fn unknown_percent(&self, before: &Self, cpus: &[usize]) -> f64 {
        let at = |occupancy: &Self, cpu: usize| occupancy.unknown_ns.get(cpu).copied().unwrap_or(0);
        let on = |&cpu: &usize| at(self, cpu).saturating_sub(at(before, cpu));
        self.percent(before, cpus.iter().map(on).sum(), cpus)
    }

    /// Foreign time since `before` as a percentage of the time of `cpus`.
    pub fn foreign_percent(&self, before: &Self, allowed: &[u32], cpus: &[usize]) -> f64 {
        let foreign: u64 = self
            .foreign(before, allowed, cpus)
            .iter()
            .map(|f| f.1)
            .sum();
        self.percent(before, foreign, cpus)
    }

    /// `ns` since `before`, of all that these CPUs had.
    fn percent(&self, before: &Self, ns: u64, cpus: &[usize]) -> f64 {
        let available = self.at_ns.saturating_sub(before.at_ns) as f64 * cpus.len() as f64;
        100.0 * ns as f64 / available.max(1.0)
    }
}

impl Process {
    /// Takes in the entry of one CPU.
    fn add_entry(&mut self, cpu: usize, occupancy: &types::occupancy) {
        self.add(cpu, occupancy.ns);
        if self.comm.is_empty() {
            let name = occupancy.comm.bytes();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            self.comm = String::from_utf8_lossy(name).into_owned();
        }
    }

    fn add(&mut self, cpu: usize, ns: u64) {
        if self.ns.len() <= cpu {
            self.ns.resize(cpu + 1, 0);
        }
        self.ns[cpu] += ns;
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs a shell until it has ended, and says its process id.
    fn neighbour(script: &str) -> u32 {
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let id = child.id();
        child.wait().unwrap();
        id
    }

    const BUSY: &str = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done";

    /// Starts this many processes, each of which ends at once.
    fn crowd(processes: u32) {
        neighbour(&format!(
            "i=0; while [ $i -lt {processes} ]; do (:); i=$((i+1)); done"
        ));
    }

    #[test]
    fn foreign_process_is_found_after_many_others() {
        if !sys::require::root() {
            return;
        }
        let small = OccupancyProbe::with_capacity(256).unwrap();
        let large = OccupancyProbe::attach().unwrap();
        crowd(5000);
        for (counter, known) in [(&small, 200), (&large, 5000)] {
            let crowded = counter.snapshot().unwrap();
            assert!(crowded.processes.len() >= known / 2, "{known}");
            counter.forget().unwrap();
            let before = counter.snapshot().unwrap();
            assert!(before.processes.len() < known / 2, "{known}");
            let id = neighbour(BUSY);
            let after = counter.snapshot().unwrap();
            let cpus: Vec<usize> = (0..after.unknown_ns.len()).collect();
            let foreign = after.foreign(&before, &[], &cpus);
            // By its number: whoever is looked at before it is begun has its parent's name.
            let mut names = foreign.iter().map(|(name, _)| name);
            let found = names.any(|name| name.contains(&format!("({id})")));
            assert!(found, "{foreign:?}");
        }
    }

    #[test]
    fn foreign_process_is_found_by_name() {
        if !sys::require::root() {
            return;
        }
        let counter = OccupancyProbe::attach().unwrap();
        let before = counter.snapshot().unwrap();
        let id = neighbour(BUSY);
        let after = counter.snapshot().unwrap();
        let cpus: Vec<usize> = (0..after.unknown_ns.len()).collect();
        let found = |allowed: &[u32]| {
            let foreign = after.foreign(&before, allowed, &cpus);
            foreign
                .iter()
                .any(|(name, ns)| name.contains(&format!("({id})")) && *ns > 0)
        };
        assert!(found(&[]));
        assert!(!found(&[id]));
        assert!(after.foreign_percent(&before, &[], &cpus) > 0.0);
    }

    #[test]
    fn only_given_cpus_and_interval_count() {
        let occupancy = |at_ns, ns: [u64; 2]| Occupancy {
            at_ns,
            processes: [(
                9,
                Process {
                    comm: "cc".into(),
                    ns: ns.to_vec(),
                },
            )]
            .into(),
            unknown_ns: vec![at_ns / 10, at_ns / 5, at_ns],
        };
        let (before, after) = (occupancy(0, [100, 50]), occupancy(1_000, [300, 950]));
        assert!((after.unknown_percent(&before, &[0, 1]) - 15.0).abs() < 1e-9);
        assert!((after.unknown_percent(&before, &[1]) - 20.0).abs() < 1e-9);
        assert_eq!(
            after.foreign(&before, &[], &[0]),
            [("cc (9)".to_owned(), 200)]
        );
        assert!((after.foreign_percent(&before, &[], &[0, 1]) - 55.0).abs() < 1e-9);
        assert!(after.foreign(&before, &[9], &[0, 1]).is_empty());
    }
}
