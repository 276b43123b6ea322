//! Which processes held the CPUs: runs in every trial, to find neighbours that disturbed it.
//!
//! It decides who ran for how long; who was allowed to is the caller's to say.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::thread;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use crate::error::check_privileges;
use crate::{Error, raw};

bpf::skeleton!(mod skel = "foreign");

/// The attached counter. Dropping it detaches it.
#[derive(Debug)]
pub struct Foreign {
    occupants: MapHandle,
    occupancies: MapHandle,
    _link: Link,
}

/// How long processes held CPUs since the counter was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// By process id. Idle time and the kernel's own threads are left out.
    pub processes: BTreeMap<u32, Process>,
    /// Nanoseconds over all CPUs of which nobody knows whose they were: a switch was not seen, or
    /// there were too many processes.
    pub unknown_ns: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub comm: String,
    /// Nanoseconds by CPU, interrupts that came meanwhile included.
    pub ns: Vec<u64>,
}

impl Foreign {
    /// # Errors
    /// [`Error::Missing`] without the privileges, or what the kernel refuses.
    pub fn attach() -> Result<Self, Error> {
        check_privileges()?;
        let mut storage = MaybeUninit::uninit();
        let skel = skel::ForeignSkelBuilder::default()
            .open(&mut storage)
            .and_then(OpenSkel::load)
            .map_err(Error::bpf("loading the foreign CPU counter"))?;
        let handle = |map: &libbpf_rs::MapMut<'_>| {
            MapHandle::try_from(map).map_err(Error::bpf("duplicating a map descriptor"))
        };
        Ok(Self {
            occupants: handle(&skel.maps.occupants)?,
            occupancies: handle(&skel.maps.occupancies)?,
            _link: skel
                .progs
                .note_switch
                .attach_trace()
                .map_err(Error::bpf("attaching to sched_switch"))?,
        })
    }

    /// Everything counted so far, what runs now included. Takes a moment on each CPU.
    pub fn snapshot(&self) -> Result<Occupancy, Error> {
        switch_everywhere();
        let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
        for key in self.occupancies.keys() {
            let values = self
                .occupancies
                .lookup_percpu(&key, MapFlags::ANY)
                .map_err(Error::bpf("reading a process's CPU time"))?
                .unwrap_or_default();
            processes.insert(process_id(&key), Process::of(&values));
        }
        let current = raw::per_cpu(&self.occupants, 0)?;
        let at_ns = sys::clock::monotonic_ns();
        let mut unknown_ns = 0;
        for (cpu, occupant) in current.iter().enumerate() {
            let &[since_ns, tgid, unknown] = occupant.as_slice() else {
                continue;
            };
            unknown_ns += unknown;
            let tgid = u32::try_from(tgid).unwrap_or(0);
            if since_ns == 0 || tgid == 0 {
                continue;
            }
            let process = processes.entry(tgid).or_default();
            process.ns.resize(current.len(), 0);
            process.ns[cpu] += at_ns.saturating_sub(since_ns);
        }
        Ok(Occupancy {
            at_ns,
            processes,
            unknown_ns,
        })
    }
}

/// Makes every CPU switch tasks. Where a kernel hides switches, what has run since the last one that
/// was seen is known only once another is.
fn switch_everywhere() {
    let visit = || {
        let cpus = thread::available_parallelism().map_or(0, usize::from);
        for cpu in 0..cpus {
            // A CPU that this process may not use is not in the account of its trials either.
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

    /// Time since `before` of which nobody knows whose it was, as a percentage of all CPUs' time.
    pub fn unknown_percent(&self, before: &Self, cpus: usize) -> f64 {
        let unknown = self.unknown_ns.saturating_sub(before.unknown_ns);
        let available = self.at_ns.saturating_sub(before.at_ns) as f64 * cpus as f64;
        100.0 * unknown as f64 / available.max(1.0)
    }

    /// Foreign time since `before` as a percentage of the time of `cpus`.
    pub fn foreign_percent(&self, before: &Self, allowed: &[u32], cpus: &[usize]) -> f64 {
        let foreign: u64 = self
            .foreign(before, allowed, cpus)
            .iter()
            .map(|f| f.1)
            .sum();
        let available = self.at_ns.saturating_sub(before.at_ns) as f64 * cpus.len() as f64;
        100.0 * foreign as f64 / available.max(1.0)
    }
}

impl Process {
    fn of(values: &[Vec<u8>]) -> Self {
        let comm = |value: &Vec<u8>| {
            let bytes = value.get(8..24)?;
            let end = bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len());
            (end > 0).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
        };
        Self {
            comm: values.iter().find_map(comm).unwrap_or_default(),
            ns: values
                .iter()
                .map(|value| raw::words(value).first().copied().unwrap_or(0))
                .collect(),
        }
    }
}

fn process_id(key: &[u8]) -> u32 {
    key.try_into().map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_neighbour_is_found_by_name_and_an_allowed_one_is_not() {
        if !sys::require::root() {
            return;
        }
        let counter = Foreign::attach().unwrap();
        let before = counter.snapshot().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done"])
            .spawn()
            .unwrap();
        let id = child.id();
        child.wait().unwrap();
        let after = counter.snapshot().unwrap();
        let cpus: Vec<usize> = (0..after.processes[&id].ns.len()).collect();
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
    fn only_the_asked_cpus_and_the_time_since_count() {
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
            unknown_ns: at_ns / 5,
        };
        let (before, after) = (occupancy(0, [100, 50]), occupancy(1_000, [300, 950]));
        assert!((after.unknown_percent(&before, 2) - 10.0).abs() < 1e-9);
        assert_eq!(
            after.foreign(&before, &[], &[0]),
            [("cc (9)".to_owned(), 200)]
        );
        assert!((after.foreign_percent(&before, &[], &[0, 1]) - 55.0).abs() < 1e-9);
        assert!(after.foreign(&before, &[9], &[0, 1]).is_empty());
    }
}
