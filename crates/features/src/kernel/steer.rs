//! Steers both directions of a flow to one CPU: sets up the queues that carry the frames (steer.h), and waits until
//! they are empty.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use bpf::Map;
use datapath::Error;
use libbpf_rs::libbpf_sys::{bpf_cpumap_val, bpf_cpumap_val__bindgen_ty_1 as CpumapProgram};
use libbpf_rs::{Link, MapCore as _};

use super::account::{self, Accounts};
use super::calls::run_live;
use super::failed;
use super::settings::Settings;
use super::skel::flow::{FlowSkel, OpenFlowSkel, types};

/// The timeout for a CPU that is busy with other work.
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Steering {
    cpus: Vec<u32>,
    /// The id of the map of queues, by which programs refer to it.
    queues: u32,
    order: Map<u32, types::steering>,
    accounts: Accounts,
    mark: OwnedFd,
    /// The link of the program that observes rejected frames.
    _told: Link,
}

/// Sizes the maps of the programs that steer to these CPUs. Without CPUs, none of these programs is loaded.
pub(super) fn prepare(open: &mut OpenFlowSkel<'_>, cpus: &[u32]) -> libbpf_rs::Result<()> {
    let steers = !cpus.is_empty();
    open.progs.count_flows.set_autoload(!steers);
    open.progs.steer_frames.set_autoload(steers);
    open.progs.count_steered.set_autoload(steers);
    open.progs.count_refused.set_autoload(steers);
    open.progs.mark_queue.set_autoload(steers);
    if !steers {
        return open.maps.queues.set_autocreate(false);
    }
    let count = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let possible = libbpf_rs::num_possible_cpus()?;
    open.maps
        .queues
        .set_max_entries(u32::try_from(possible).unwrap_or(u32::MAX))?;
    open.maps.counting_cpus.set_max_entries(count)?;
    if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
        knobs.counting_cpu_count = count;
    }
    Ok(())
}

impl Steering {
    /// Creates a queue for each counting CPU. The kernel runs the counting program at the end of each queue. Returns
    /// `None` without such CPUs.
    pub(super) fn new(skel: &FlowSkel<'_>, settings: &Settings) -> Result<Option<Self>, Error> {
        if settings.steer.is_empty() {
            return Ok(None);
        }
        let (maps, progs) = (&skel.maps, &skel.progs);
        let queues = Map::<u32, bpf_cpumap_val>::new(&maps.queues)?;
        let info = maps.queues.info();
        let info = info.map_err(failed("asking for a map's number"))?;
        let steering = Self {
            queues: info.info.id,
            order: Map::new(&maps.steering)?,
            accounts: Accounts::new(&maps.accounts)?,
            mark: bpf::program(&progs.mark_queue)?,
            _told: progs
                .count_refused
                .attach_raw_tracepoint("xdp_cpumap_enqueue")
                .map_err(failed("watching the CPUs' queues"))?,
            cpus: settings.steer.clone(),
        };
        let counting_cpus = Map::<u32, u32>::new(&maps.counting_cpus)?;
        let queue = bpf_cpumap_val {
            qsize: settings.steer_waiting,
            bpf_prog: CpumapProgram {
                fd: progs.count_steered.as_fd().as_raw_fd(),
            },
        };
        for (index, cpu) in (0..).zip(&steering.cpus) {
            counting_cpus
                .set(&index, cpu)
                .and_then(|()| queues.set(cpu, &queue))
                .map_err(|error| {
                    Error::failed(format!("giving CPU {cpu} a queue"), error.source)
                })?;
        }
        steering.say(0)?;
        Ok(Some(steering))
    }

    /// Waits until everything sent has arrived or is lost. Nothing more may be sent.
    pub(super) fn drain(&self) -> Result<(), Error> {
        for &cpu in &self.cpus {
            self.drain_queue(cpu)?;
        }
        Ok(())
    }

    /// A queue preserves order, so everything before a mark has arrived when the mark has.
    fn drain_queue(&self, cpu: u32) -> Result<(), Error> {
        let before = account::marks(&self.accounts, cpu)?;
        let deadline = Instant::now() + DEADLINE;
        self.say(cpu)?;
        while Instant::now() < deadline {
            // Repeated, because a full queue drops the mark.
            run_live(&self.mark, 1).map_err(|error| Error::failed("marking a queue", error))?;
            for _ in 0..50 {
                if account::marks(&self.accounts, cpu)? != before {
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        let silent = io::Error::other(format!("nothing arrives in {DEADLINE:?}"));
        Err(Error::failed(format!("emptying CPU {cpu}'s queue"), silent))
    }

    fn say(&self, marked_cpu: u32) -> Result<(), Error> {
        let order = types::steering {
            marked_cpu,
            queues: self.queues,
        };
        self.order
            .set(&0, &order)
            .map_err(failed("telling the steering programs"))
    }
}
