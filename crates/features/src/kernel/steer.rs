//! Both directions of a flow on one CPU: the queues by which frames get there (steer.h), and knowing
//! that nothing waits in them any more.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use datapath::Error;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::account;
use super::calls::run_live;
use super::failed;
use super::settings::Settings;
use super::skel::Plain;
use super::skel::flow::{FlowSkel, OpenFlowSkel, types};

/// How long a CPU may be busy otherwise.
const DEADLINE: Duration = Duration::from_secs(20);
const ZERO: [u8; 4] = 0_u32.to_ne_bytes();

#[derive(Debug)]
pub(super) struct Steering {
    cpus: Vec<u32>,
    queues: MapHandle,
    order: MapHandle,
    accounts: MapHandle,
    first: OwnedFd,
    mark: OwnedFd,
    /// What tells of refused frames.
    _told: Link,
}

/// Sizes the maps of the programs that steer to these CPUs; loads none of them where there are none.
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
    /// Gives each CPU that is to count a queue, at whose end the kernel runs the program that does;
    /// none where there are no such CPUs.
    pub(super) fn new(skel: &FlowSkel<'_>, settings: &Settings) -> Result<Option<Self>, Error> {
        if settings.steer.is_empty() {
            return Ok(None);
        }
        let handle = |map: &libbpf_rs::MapMut<'_>| {
            MapHandle::try_from(map).map_err(failed("keeping a map of the steering programs"))
        };
        let program = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .map_err(|error| Error::failed("keeping a steering program", error))
        };
        let steering = Self {
            queues: handle(&skel.maps.queues)?,
            order: handle(&skel.maps.steering)?,
            accounts: handle(&skel.maps.accounts)?,
            first: program(skel.progs.steer_frames.as_fd())?,
            mark: program(skel.progs.mark_queue.as_fd())?,
            _told: skel
                .progs
                .count_refused
                .attach_raw_tracepoint("xdp_cpumap_enqueue")
                .map_err(failed("watching the CPUs' queues"))?,
            cpus: settings.steer.clone(),
        };
        let counts = skel.progs.count_steered.as_fd().as_raw_fd();
        let queue: Vec<u8> = [settings.steer_waiting.to_ne_bytes(), counts.to_ne_bytes()].concat();
        for (index, cpu) in (0_u32..).zip(&steering.cpus) {
            let named = skel.maps.counting_cpus.update(
                &index.to_ne_bytes(),
                &cpu.to_ne_bytes(),
                MapFlags::ANY,
            );
            named
                .and_then(|()| {
                    steering
                        .queues
                        .update(&cpu.to_ne_bytes(), &queue, MapFlags::ANY)
                })
                .map_err(|error| Error::failed(format!("giving CPU {cpu} a queue"), error))?;
        }
        steering.say(0)?;
        Ok(Some(steering))
    }

    /// What takes frames where they come in.
    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.first.as_fd()
    }

    /// Waits until everything that was sent has arrived or is lost; nothing more may be sent.
    pub(super) fn drain(&self) -> Result<(), Error> {
        for &cpu in &self.cpus {
            self.drain_queue(cpu)?;
        }
        Ok(())
    }

    /// A queue keeps order: what was before a mark has arrived with it.
    fn drain_queue(&self, cpu: u32) -> Result<(), Error> {
        let before = account::marks(&self.accounts, cpu)?;
        let deadline = Instant::now() + DEADLINE;
        self.say(cpu)?;
        while Instant::now() < deadline {
            // Again, because a full queue takes no mark.
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
        let queues = self
            .queues
            .info()
            .map_err(failed("asking for a map's number"))?;
        let order = types::steering {
            marked_cpu,
            queues: queues.info.id,
        };
        self.order
            .update(&ZERO, order.bytes(), MapFlags::ANY)
            .map_err(failed("telling the steering programs"))
    }
}
