//! What the datapaths share whose packets a program in the kernel reads.

use std::path::Path;

use datapath::{Error, Missing};
use sys::caps::{Capability, Effective};
use sys::numa::{self, Topology};

use super::{LiveCounters, Plan};
use crate::counters::{Counters, Exported, REFUSALS, Seen};
use crate::flow::Flow;
use crate::kernel::{Account, Settings};
use crate::rows::RowWriter;
use crate::work;

/// What every datapath with a program in the kernel needs.
pub(super) fn check() -> Result<(), Missing> {
    let wanted = [Capability::Bpf, Capability::NetAdmin, Capability::Perfmon];
    let missing = Effective::read().map(|own| own.missing(&wanted));
    match missing {
        Ok(missing) if missing.is_empty() => Ok(()),
        _ => Err(Missing::new(
            "needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
            "run with sudo, or: setcap cap_bpf,cap_net_admin,cap_perfmon+ep",
        )),
    }
}

/// What the programs are told; refuses what they cannot give, and says who can.
pub(super) fn settings(name: &str, plan: &Plan) -> Result<Settings, Error> {
    if plan.outgoing {
        return Err(Error::Plan(format!(
            "{name} sees what comes in only; tpacket and recv see what is sent as well"
        )));
    }
    if plan.promiscuous {
        return Err(Error::Plan(format!(
            "{name} leaves the device as it is; tpacket and recv take frames for other machines"
        )));
    }
    let columns = plan.schema.columns();
    if let Some(column) = columns.iter().find(|column| column.needs_payload) {
        return Err(Error::Plan(format!(
            "{}: {} is made from payload, which {name} does not read; tpacket and recv do",
            plan.schema.name, column.name
        )));
    }
    let settings = Settings {
        options: plan.schema.options(&plan.options),
        wakeup: plan.wakeup,
        steer: if plan.steer { near(plan)? } else { Vec::new() },
        ..Settings::default()
    };
    Ok(Settings {
        flows_per_cpu: settings.flows_per_cpu.min(share(plan)?),
        ..settings
    })
}

/// The CPUs that are near to a plan's device.
fn near(plan: &Plan) -> Result<Vec<u32>, Error> {
    let sysfs = Path::new(numa::SYSFS);
    let topology = Topology::read(sysfs)
        .map_err(|error| Error::failed("asking which CPUs and nodes there are", error))?;
    Ok(topology.near(numa::device_node(sysfs, &plan.interface)))
}

/// Each CPU's part of the flows that a plan allows.
fn share(plan: &Plan) -> Result<u32, Error> {
    let cpus = libbpf_rs::num_possible_cpus()
        .map_err(|error| Error::failed("counting the CPUs", error))?;
    let part = plan.options.limits.most_flows / cpus.max(1);
    Ok(u32::try_from(part).unwrap_or(u32::MAX).max(1))
}

/// Rows of flows whose packets the kernel has read.
#[derive(Debug)]
pub(super) struct PlaneWork {
    rows: RowWriter<Flow>,
    exported: Exported,
}

impl PlaneWork {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            rows: RowWriter::new(work::batcher(plan.schema, &plan.options), (plan.sink)()),
            exported: Exported::default(),
        }
    }

    pub(super) fn row(&mut self, flow: Box<Flow>) {
        self.exported.row(&flow);
        self.rows.push(flow);
    }

    pub(super) fn flush(&mut self) {
        self.rows.flush();
    }

    /// What was counted so far; what is not exported is taken to be in a table.
    pub(super) fn counters(&self, account: &Account) -> LiveCounters {
        let seen = seen(account);
        let left = seen.packets.saturating_sub(seen.left_out());
        let open = left.saturating_sub(self.exported.packets);
        told(account, self.exported, open, self.rows.counts())
    }

    /// Completes the output; from now on nothing is in a table.
    pub(super) fn finish(
        self,
        account: Result<Account, Error>,
    ) -> (LiveCounters, Result<(), String>) {
        let (rows, lost_rows, written) = self.rows.finish();
        match account {
            Ok(account) => {
                let counters = told(&account, self.exported, 0, (rows, lost_rows));
                (counters, written.map_err(|error| error.to_string()))
            }
            Err(error) => (LiveCounters::default(), Err(error.to_string())),
        }
    }
}

/// In the words of every other datapath.
fn told(account: &Account, exported: Exported, open: u64, rows: (u64, u64)) -> LiveCounters {
    LiveCounters {
        account: Counters {
            seen: seen(account),
            exported,
            open,
        },
        no_room: account.lost(),
        changed_queue: None,
        rows: rows.0,
        lost_rows: rows.1,
    }
}

fn seen(account: &Account) -> Seen {
    let mut seen = Seen {
        // A packet without room is counted as that, and as nothing else.
        packets: account.packets - account.lost(),
        bytes: account.bytes,
        lone_fragments: account.lone_fragments,
        filtered: account.filtered,
        sampled_out: account.sampled_out,
        rate_limited: account.rate_limited,
        ..Seen::default()
    };
    // The kernel's programs never meet another link type than Ethernet.
    for (&why, &refused) in REFUSALS[1..].iter().zip(&account.refused) {
        seen.refuse_many(why, refused);
    }
    seen
}
