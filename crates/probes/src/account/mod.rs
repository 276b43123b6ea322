//! Whole-machine CPU time by state, from tracepoints: exact where `/proc/stat` samples ticks.
//!
//! It decides what a nanosecond was spent in and on whose behalf. A page fault or another
//! exception counts as the state it came from; on PREEMPT_RT, where softirqs are preempted, the
//! resynchronisation counter says that the states cannot be told apart.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::thread;

use bpf::{Map, PerCpu};
use libbpf_rs::{Link, ProgramMut};
use netdev::requirement;

use crate::Error;
use crate::programs::{self, Timing};

mod known_answers;
mod snapshot;
#[cfg(test)]
mod tests;
mod usage;

pub use known_answers::{Check, known_answers};
pub use snapshot::{Cpu, Snapshot, State, Times};
pub use usage::{CpuUsage, Usage};

bpf::skeleton!(mod skel = "accountant");

/// Groups of tasks, group 0 included; twin of `ACCOUNT_GROUPS`.
pub const GROUPS: usize = 8;

/// Interrupts that have tracepoints of their own, on machines that have them (x86).
const VECTORS: [&str; 9] = [
    "local_timer",
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
    "spurious_apic",
    "error_apic",
    "thermal_apic",
];

/// The attached accountant. Dropping it detaches it.
#[derive(Debug)]
pub struct Accountant {
    accounts: PerCpu<skel::types::account>,
    groups: Map<u32, u32>,
    own: Vec<u32>,
    _links: Vec<Link>,
    _timing: Option<Timing>,
}

/// Options of the accountant.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Chosen tasks: thread or process id, and its group (1 to 7).
    pub groups: BTreeMap<u32, u32>,
    /// Time every BPF program of the machine, its own included.
    pub time_programs: bool,
}

impl Accountant {
    /// Attaches every program, then starts counting on every CPU.
    ///
    /// # Errors
    /// [`Error::Missing`] where privileges or the kernel's type information are not there.
    pub fn attach(options: &Options) -> Result<Self, Error> {
        requirement::check(crate::TRACING)?;
        let mut storage = MaybeUninit::uninit();
        let builder = skel::AccountantSkelBuilder::default();
        let mut skel = bpf::load(builder, &mut storage, "the CPU accountant", |_| {
            Ok::<_, Error>(())
        })?;
        let links = attach_all(&skel.progs)?;
        let accountant = Self {
            accounts: PerCpu::new(&skel.maps.accounts)?,
            groups: Map::new(&skel.maps.groups)?,
            own: own_ids(&skel.progs)?,
            _links: links,
            _timing: options.time_programs.then(Timing::enable).transpose()?,
        };
        for (&task, &group) in &options.groups {
            accountant.choose(task, group)?;
        }
        if let Some(bss) = skel.maps.bss_data.as_deref_mut() {
            bss.counting = 1;
        }
        wake_every_cpu()?;
        Ok(accountant)
    }

    /// Puts a task, by thread or process id, into a group (1 to 7) from its next switch on.
    pub fn choose(&self, task: u32, group: u32) -> Result<(), Error> {
        if !(1..GROUPS).contains(&(group as usize)) {
            return Err(Error::Config(format!("there is no CPU group {group}")));
        }
        self.groups
            .set(&task, &group)
            .map_err(Error::bpf("choosing a task"))
    }

    /// Everything counted so far.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let programs = match self._timing {
            Some(_) => programs::programs(),
            None => Vec::new(),
        };
        Snapshot::read(&self.accounts, programs)
    }

    /// The CPU time spent between two snapshots of this accountant.
    pub fn between(&self, before: &Snapshot, after: &Snapshot) -> Usage {
        Usage::between(before, after, &self.own)
    }
}

fn attach_all(progs: &skel::AccountantProgs<'_>) -> Result<Vec<Link>, Error> {
    let mut links = vec![
        raw_tracepoint(&progs.leave_softirq, "softirq_exit")?,
        raw_tracepoint(&progs.enter_softirq, "softirq_entry")?,
        raw_tracepoint(&progs.leave_hardirq, "irq_handler_exit")?,
        raw_tracepoint(&progs.enter_hardirq, "irq_handler_entry")?,
        raw_tracepoint(&progs.leave_syscall, "sys_exit")?,
        raw_tracepoint(&progs.enter_syscall, "sys_enter")?,
        progs
            .switch_task
            .attach_trace()
            .map_err(Error::bpf("attaching to sched_switch"))?,
    ];
    for vector in VECTORS {
        let leave = raw_tracepoint(&progs.leave_hardirq, &format!("{vector}_exit"));
        let enter = raw_tracepoint(&progs.enter_hardirq, &format!("{vector}_entry"));
        // One without the other would leave its state behind.
        if let (Ok(leave), Ok(enter)) = (leave, enter) {
            links.extend([leave, enter]);
        }
    }
    Ok(links)
}

fn raw_tracepoint(program: &ProgramMut<'_>, name: &str) -> Result<Link, Error> {
    program
        .attach_raw_tracepoint(name)
        .map_err(Error::bpf(format!("attaching to {name}")))
}

fn own_ids(progs: &skel::AccountantProgs<'_>) -> Result<Vec<u32>, Error> {
    use std::os::fd::AsFd;
    [
        &progs.enter_hardirq,
        &progs.leave_hardirq,
        &progs.enter_softirq,
        &progs.leave_softirq,
        &progs.enter_syscall,
        &progs.leave_syscall,
        &progs.switch_task,
    ]
    .into_iter()
    .map(|program| {
        libbpf_rs::Program::id_from_fd(program.as_fd()).map_err(Error::bpf("asking a program's id"))
    })
    .collect()
}

/// A CPU without an event has no account: an idle one may sleep through a whole trial.
fn wake_every_cpu() -> Result<(), Error> {
    let wake = || -> std::io::Result<()> {
        for cpu in sys::sched::allowed_cpus()? {
            sys::sched::pin(cpu)?;
        }
        Ok(())
    };
    thread::scope(|scope| scope.spawn(wake).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(Error::bpf("visiting every CPU"))
}
