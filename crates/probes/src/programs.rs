//! How long every BPF program of the machine ran, while somebody keeps the kernel counting.

use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;
use libbpf_rs::query::ProgInfoIter;

use crate::Error;

/// Keeps the kernel timing programs; it stops with the last one that is dropped. Timing costs
/// every run of every program two clock readings.
#[derive(Debug)]
pub struct Timing {
    _enabled: OwnedFd,
}

/// One loaded program. Times count only while a [`Timing`] lived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRun {
    pub id: u32,
    pub name: String,
    /// The first 8 bytes of the hash of its instructions, in hexadecimal.
    pub tag: String,
    pub run_ns: u64,
    pub runs: u64,
    /// Runs refused because the program was running on that CPU already.
    pub misses: u64,
}

impl Timing {
    /// # Errors
    /// When the kernel refuses (no `CAP_SYS_ADMIN`).
    pub fn enable() -> Result<Self, Error> {
        // SAFETY: the call takes no pointer; the descriptor that it returns has no other owner.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            let source = std::io::Error::from_raw_os_error(-fd);
            return Err(Error::bpf("timing BPF programs")(source));
        }
        Ok(Self {
            // SAFETY: `fd` was just opened above.
            _enabled: unsafe { OwnedFd::from_raw_fd(fd) },
        })
    }
}

/// Every program that is loaded now.
pub fn programs() -> Vec<ProgramRun> {
    ProgInfoIter::default()
        .map(|info| ProgramRun {
            id: info.id,
            name: info.name.to_string_lossy().into_owned(),
            tag: info
                .tag
                .0
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            run_ns: info.run_time_ns,
            runs: info.run_cnt,
            misses: info.recursion_misses,
        })
        .collect()
}

/// The run time of each program between two lists. Programs that did not run are left out.
pub fn ran_between(before: &[ProgramRun], after: &[ProgramRun]) -> Vec<ProgramRun> {
    after
        .iter()
        .map(|now| {
            let then = before.iter().find(|then| then.id == now.id);
            let less =
                |field: fn(&ProgramRun) -> u64| field(now).saturating_sub(then.map_or(0, field));
            ProgramRun {
                run_ns: less(|p| p.run_ns),
                runs: less(|p| p.runs),
                misses: less(|p| p.misses),
                ..now.clone()
            }
        })
        .filter(|program| program.runs > 0 || program.misses > 0)
        .collect()
}
