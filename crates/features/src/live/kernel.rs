//! What the datapaths share whose packets a program in the kernel reads.

use std::path::Path;

use datapath::Error;
use netdev::requirement::Requirement;
use sys::caps::Capability;
use sys::capture::Promiscuous;
use sys::numa::{self, Topology};

use super::{Direction, LiveCounters, Plan};
use crate::counters::{Counters, InputCounters, OutputCounters, REFUSALS};
use crate::flow::Flow;
use crate::kernel::{Account, FlowPlane, Settings, Verdict};
use crate::pipeline::{self, WriteResult};
use crate::rows::RowWriter;

/// What every datapath with a program in the kernel needs.
pub(super) const CAPABILITIES: Requirement =
    Requirement::Capabilities(&[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon]);
pub(super) const REQUIREMENTS: &[Requirement] = &[CAPABILITIES];

/// Where a program sees frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Xdp,
    Tc,
}

/// What the programs are told that count flows or packets; refuses what they cannot give, and says
/// who can.
pub(super) fn settings(name: &str, hook: Hook, plan: &Plan) -> Result<Settings, Error> {
    if plan.recorder.is_some() {
        return Err(Error::Plan(format!(
            "{name} hands up no frames that could be recorded; tpacket, recv and af-xdp do"
        )));
    }
    let columns = plan.schema.columns();
    let missing = columns.iter().filter(|column| column.needs_payload);
    let missing: Vec<&str> = missing.map(|column| column.name).collect();
    if !missing.is_empty() {
        return Err(Error::Plan(format!(
            "{schema}: {name} does not give these columns, which are made from the packets themselves: {columns}; \
             tpacket, recv and af-xdp do; or leave them out: --without {columns}",
            schema = plan.schema.name,
            columns = missing.join(",")
        )));
    }
    let settings = Settings {
        options: plan.schema.options(&plan.options),
        models: plan.model.is_some(),
        steer: if plan.steer { near(plan)? } else { Vec::new() },
        ..any_settings(name, hook, plan)?
    };
    Ok(Settings {
        flows_per_cpu: settings.flows_per_cpu.min(share(plan)?),
        ..settings
    })
}

/// What any program is told.
pub(super) fn any_settings(name: &str, hook: Hook, plan: &Plan) -> Result<Settings, Error> {
    if hook == Hook::Xdp && plan.direction != Direction::In {
        return Err(Error::Plan(format!(
            "{name} sees what comes in only; tc-flow, tpacket and recv see what is sent as well"
        )));
    }
    if plan.tap && plan.direction != Direction::In {
        return Err(Error::Plan(
            "a tap drops what it counts, which must not be what this machine sends: --direction in"
                .into(),
        ));
    }
    super::device::check_plan(name, plan)?;
    let verdict = if plan.tap {
        Verdict::Tap
    } else {
        Verdict::Inline
    };
    Ok(Settings {
        verdict,
        wakeup: plan.wakeup,
        ..Settings::default()
    })
}

/// Refuses several workers, and says who has them.
pub(super) fn one_worker(name: &str, plan: &Plan) -> Result<(), Error> {
    if plan.workers(1) == 1 {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "{name} has one worker; xdp-ringbuf, tpacket and recv share the work among several"
    )))
}

/// Has the device take frames for other machines for as long as this lives, where a plan asks for it.
pub(super) fn promiscuous(plan: &Plan) -> Result<Option<Promiscuous>, Error> {
    let wanted = plan.promiscuous.then(|| Promiscuous::start(plan.ifindex));
    wanted
        .transpose()
        .map_err(|error| Error::failed(format!("{}: promiscuous mode", plan.interface), error))
}

/// Refuses rows that are not about flows.
pub(super) fn only_flows(name: &str, plan: &Plan) -> Result<(), Error> {
    if plan.schema.flow_columns().is_some() {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "{}: {name} hands up flows, not packets; xdp-ringbuf, tpacket, recv and af-xdp hand up each packet",
        plan.schema.name
    )))
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

/// Puts the plan's model in force, before the first packet.
pub(super) fn connect(plan: &Plan, plane: &mut FlowPlane) -> Result<(), Error> {
    match (&plan.model, plane.take_models()) {
        (Some(slot), Some(models)) => slot.connect(models, plan.schema.rules),
        _ => Ok(()),
    }
}

/// Rows of flows that the kernel has kept.
#[derive(Debug)]
pub(super) struct PlaneWork {
    rows: RowWriter<Flow>,
    exported: OutputCounters,
    /// As it was last read.
    account: Account,
}

impl PlaneWork {
    pub(super) fn new(plan: &Plan) -> Self {
        let columns = plan.schema.flow_columns().unwrap_or_default();
        let batcher = pipeline::batcher(plan.schema, columns, &plan.options);
        Self {
            rows: RowWriter::new(&batcher, (plan.sink)()),
            exported: OutputCounters::default(),
            account: Account::default(),
        }
    }

    pub(super) fn row(&mut self, flow: Box<Flow>) {
        self.exported.row(&flow);
        self.rows.push(flow);
    }

    pub(super) fn flush(&mut self) {
        self.rows.flush();
    }

    pub(super) fn counters(&mut self, account: Account) -> LiveCounters {
        self.account = account;
        counters(&account, self.exported, self.rows.counts())
    }

    /// Completes the output; from now on nothing is in a table. Without an account the latest stands.
    pub(super) fn finish(self, account: Result<Account, Error>) -> FinalCounters {
        let written = WriteResult::new(self.exported, self.rows.finish());
        finish(account, &self.account, written)
    }
}

/// The last counters, and whether all went well.
pub(super) type FinalCounters = (LiveCounters, Result<(), String>);

/// What was counted so far; what is not exported is taken to be in a table.
pub(super) fn counters(
    account: &Account,
    exported: OutputCounters,
    rows: (u64, u64),
) -> LiveCounters {
    let seen = seen(account);
    let left = seen.packets.saturating_sub(seen.left_out());
    let open = left.saturating_sub(exported.packets);
    live_counters(account, exported, open, rows)
}

/// What was counted in all, once nothing is in a table. Without an account the latest stands.
pub(super) fn finish(
    account: Result<Account, Error>,
    latest: &Account,
    written: WriteResult,
) -> FinalCounters {
    let (account, read) = match account {
        Ok(account) => (account, Ok(())),
        Err(error) => (*latest, Err(error.to_string())),
    };
    let rows = (written.rows, written.lost_rows);
    let counters = live_counters(&account, written.exported, 0, rows);
    let output = written.output.map_err(|error| error.to_string());
    (counters, output.and(read))
}

/// In the words of every other datapath.
fn live_counters(
    account: &Account,
    exported: OutputCounters,
    open: u64,
    rows: (u64, u64),
) -> LiveCounters {
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

fn seen(account: &Account) -> InputCounters {
    InputCounters {
        // A packet without room is counted as that, and as nothing else.
        packets: account.packets - account.lost(),
        bytes: account.bytes,
        lone_fragments: account.lone_fragments,
        ..left_out(account)
    }
}

/// Frames that a program has left out, as if nothing else had come.
pub(super) fn left_out(account: &Account) -> InputCounters {
    let mut seen = InputCounters {
        packets: account.left_out(),
        filtered: account.filtered,
        sampled_out: account.sampled_out,
        rate_limited: account.rate_limited,
        ..InputCounters::default()
    };
    // The kernel's programs never meet another link type than Ethernet.
    for (&why, &refused) in REFUSALS[1..].iter().zip(&account.refused) {
        seen.refuse_many(why, refused);
    }
    seen
}
