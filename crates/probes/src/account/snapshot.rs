//! The accounts of all CPUs at one moment.

use bpf::{PerCpu, Plain as _};

use super::GROUPS;
use super::skel::types::account as Account;
use crate::Error;
use crate::programs::ProgramRun;

/// The states of a CPU. The order is that of the BPF program's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Idle,
    User,
    Syscall,
    Kthread,
    Ksoftirqd,
    Hardirq,
    SoftirqHi,
    SoftirqTimer,
    SoftirqNetTx,
    SoftirqNetRx,
    SoftirqBlock,
    SoftirqIrqPoll,
    SoftirqTasklet,
    SoftirqSched,
    SoftirqHrtimer,
    SoftirqRcu,
}

impl State {
    pub const ALL: [Self; 16] = [
        Self::Idle,
        Self::User,
        Self::Syscall,
        Self::Kthread,
        Self::Ksoftirqd,
        Self::Hardirq,
        Self::SoftirqHi,
        Self::SoftirqTimer,
        Self::SoftirqNetTx,
        Self::SoftirqNetRx,
        Self::SoftirqBlock,
        Self::SoftirqIrqPoll,
        Self::SoftirqTasklet,
        Self::SoftirqSched,
        Self::SoftirqHrtimer,
        Self::SoftirqRcu,
    ];

    /// The name in records: `user`, `softirq.net_rx`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::User => "user",
            Self::Syscall => "syscall",
            Self::Kthread => "kthread",
            Self::Ksoftirqd => "ksoftirqd",
            Self::Hardirq => "hardirq",
            Self::SoftirqHi => "softirq.hi",
            Self::SoftirqTimer => "softirq.timer",
            Self::SoftirqNetTx => "softirq.net_tx",
            Self::SoftirqNetRx => "softirq.net_rx",
            Self::SoftirqBlock => "softirq.block",
            Self::SoftirqIrqPoll => "softirq.irq_poll",
            Self::SoftirqTasklet => "softirq.tasklet",
            Self::SoftirqSched => "softirq.sched",
            Self::SoftirqHrtimer => "softirq.hrtimer",
            Self::SoftirqRcu => "softirq.rcu",
        }
    }
}

/// Nanoseconds by state, indexed by `State as usize`.
pub type Times = [u64; State::ALL.len()];

/// One CPU's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Time by group of tasks, then by state; the time since the last event is included.
    pub times: [Times; GROUPS],
    pub events: u64,
    pub switches: u64,
    pub resyncs: u64,
    /// Task events of another task than the one that was switched to.
    pub unseen: u64,
}

/// All CPUs at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// By CPU number; none for a CPU that has had no event (offline).
    pub cpus: Vec<Option<Cpu>>,
    pub programs: Vec<ProgramRun>,
}

impl Snapshot {
    pub(super) fn read(
        accounts: &PerCpu<Account>,
        programs: Vec<ProgramRun>,
    ) -> Result<Self, Error> {
        let values = stable(accounts)?;
        let at_ns = sys::clock::monotonic_ns();
        Ok(Self {
            at_ns,
            cpus: values.iter().map(|one| Cpu::at(one, at_ns)).collect(),
            programs,
        })
    }
}

impl Cpu {
    /// An account, with the time since its last event given to its current state.
    pub(super) fn at(account: &Account, now_ns: u64) -> Option<Self> {
        if account.last_ns == 0 {
            return None;
        }
        let mut cpu = Self {
            times: account.ns,
            events: account.events,
            switches: account.switches,
            resyncs: account.resyncs,
            unseen: account.unseen,
        };
        let state = account.state as usize % State::ALL.len();
        let group = account.group as usize % GROUPS;
        cpu.times[group][state] += now_ns.saturating_sub(account.last_ns);
        Some(cpu)
    }
}

/// Values that did not change while they were read: an idle CPU that wakes up in the middle would
/// lose its whole sleep. A CPU that changes all the time loses one short interval at most.
fn stable(accounts: &PerCpu<Account>) -> Result<Vec<Account>, Error> {
    const TRIES: usize = 6;
    let mut kept = accounts.values(0)?;
    let mut settled = vec![false; kept.len()];
    for _ in 0..TRIES {
        let again = accounts.values(0)?;
        for (cpu, value) in again.into_iter().enumerate() {
            if !settled[cpu] {
                settled[cpu] = value.bytes() == kept[cpu].bytes();
                kept[cpu] = value;
            }
        }
        if settled.iter().all(|settled| *settled) {
            break;
        }
    }
    Ok(kept)
}
