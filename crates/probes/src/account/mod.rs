//! Whole-machine CPU time by state, from tracepoints: exact where `/proc/stat` samples ticks.
//!
//! It decides what a nanosecond was spent in and on whose behalf. A page fault or another
//! exception counts as the state it came from; on PREEMPT_RT, where softirqs are preempted, the
//! resynchronisation counter says that the states cannot be told apart.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::thread;

use datapath::Missing;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut};

use crate::Error;
use crate::error::check_privileges;
use crate::programs::{self, Timing};

mod known;
mod snapshot;
#[cfg(test)]
mod tests;
mod usage;

pub use known::{Check, known_answers};
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
    accounts: MapHandle,
    groups: MapHandle,
    own: Vec<u32>,
    _links: Vec<Link>,
    _timing: Option<Timing>,
}

/// What the accountant does besides states.
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
        check_privileges()?;
        if !sys::kernel::has_btf() {
            return Err(Error::Missing(Missing::new(
                "this kernel has no BTF type information",
                "CONFIG_DEBUG_INFO_BTF=y adds it; compare without the CPU table",
            )));
        }
        let mut storage = MaybeUninit::uninit();
        let mut skel = skel::AccountantSkelBuilder::default()
            .open(&mut storage)
            .and_then(OpenSkel::load)
            .map_err(Error::bpf("loading the CPU accountant"))?;
        let links = attach_all(&skel.progs)?;
        let handle = |map: &libbpf_rs::MapMut<'_>| {
            MapHandle::try_from(map).map_err(Error::bpf("duplicating a map descriptor"))
        };
        let accountant = Self {
            accounts: handle(&skel.maps.accounts)?,
            groups: handle(&skel.maps.groups)?,
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
            .update(&task.to_ne_bytes(), &group.to_ne_bytes(), MapFlags::ANY)
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

    /// What was spent between two snapshots of this accountant.
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
        .map_err(|source| Error::bpf("visiting every CPU")(source.into()))
}
