//! The datapaths that read the ingest sockets themselves. They are one loop with four settings:
//! how many datagrams a system call takes, whether trains travel as superframes, and whether the
//! thread sleeps. It decides nothing about which stream goes where.

mod fan_out;
mod fec;
mod gso_train;
mod losses;
pub(crate) mod policing;
mod receive_buffers;
mod stream_forwarder;
mod synthetic_work;
pub(crate) mod tally;
mod worker;

use datapath::{Datapath, Error, Missing, Running};

pub(crate) use stream_forwarder::Work;
pub(crate) use worker::Worker;

use crate::Relay;
use crate::counters::Counters;
use crate::plan::Plan;

/// Whether the datapath of this name hands every packet to userspace.
pub fn has(datapath: &str) -> bool {
    NAMES.contains(&datapath)
}

/// The datapaths of this module.
pub(crate) const NAMES: [&str; 4] = ["recv", "mmsg", "gso", "busy"];

/// How a userspace datapath reads and sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Datagrams a receive call takes at most.
    receive: usize,
    /// Datagrams (or superframes) a send call takes at most.
    send: usize,
    /// Trains of equal datagrams come by `UDP_GRO` and leave by `UDP_SEGMENT`.
    superframes: bool,
    /// Never sleeps: asks again and again, and burns a CPU.
    spin: bool,
}

/// What fast paths leave to userspace is relayed this way.
pub(crate) const SLOW_PATH: Settings = Settings {
    receive: 64,
    send: 64,
    superframes: false,
    spin: false,
};

/// One of the userspace datapaths.
#[derive(Debug)]
pub struct Userspace {
    name: &'static str,
    settings: Settings,
}

/// `recvmsg` and `sendmsg`, datagram by datagram.
pub fn recv() -> Userspace {
    Userspace {
        name: "recv",
        settings: Settings {
            receive: 1,
            send: 1,
            ..SLOW_PATH
        },
    }
}

/// `recvmmsg` and `sendmmsg`, up to 64 datagrams a call.
pub fn mmsg() -> Userspace {
    Userspace {
        name: "mmsg",
        settings: SLOW_PATH,
    }
}

/// As [`mmsg`], with trains of equal datagrams as superframes.
pub fn gso() -> Userspace {
    Userspace {
        name: "gso",
        settings: Settings {
            superframes: true,
            ..SLOW_PATH
        },
    }
}

/// As [`mmsg`], without ever sleeping.
pub fn busy() -> Userspace {
    Userspace {
        name: "busy",
        settings: Settings {
            spin: true,
            ..SLOW_PATH
        },
    }
}

impl Datapath<Relay> for Userspace {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self) -> Result<(), Missing> {
        Ok(())
    }

    fn start(&self, plan: &Plan) -> Result<Box<dyn Running<Relay>>, Error> {
        if self.settings.spin {
            tracing::info!("busy never sleeps: it uses one CPU whatever the load");
        }
        let worker = Worker::start(self.name, self.settings, &plan.cpus, None)?;
        let mut running = Box::new(RunningUserspace {
            name: self.name,
            worker,
        });
        running.reconfigure(plan)?;
        Ok(running)
    }
}

#[derive(Debug)]
struct RunningUserspace {
    name: &'static str,
    worker: Worker,
}

impl Running<Relay> for RunningUserspace {
    fn reconfigure(&mut self, plan: &Plan) -> Result<(), Error> {
        let work: Vec<_> = plan.streams.iter().cloned().map(Work::ingest).collect();
        self.worker.set_work(&work)
    }

    fn counters(&self) -> Counters {
        self.worker.counters()
    }

    fn failed(&self) -> Option<String> {
        self.worker
            .is_dead()
            .then(|| format!("{}: the worker thread has ended", self.name))
    }

    fn stop(self: Box<Self>) -> Counters {
        self.worker.stop()
    }
}
