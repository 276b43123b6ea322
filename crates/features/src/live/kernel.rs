//! Shared code of the datapaths whose packets are read by a program in the kernel.

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

/// The capabilities that every datapath with a kernel program requires.
pub(super) const CAPABILITIES: Requirement =
    Requirement::Capabilities(&[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon]);
pub(super) const REQUIREMENTS: &[Requirement] = &[CAPABILITIES];

/// The hook at which a program sees frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Xdp,
    Tc,
}

/// Settings for the programs that count flows or record packets.
///
/// # Errors
/// The plan requires something that they cannot supply. The error names the datapaths that can.
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

/// Settings that all programs share.
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

/// Checks that the plan has one worker. The error names the datapaths that support several.
pub(super) fn one_worker(name: &str, plan: &Plan) -> Result<(), Error> {
    if plan.workers(1) == 1 {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "{name} has one worker; xdp-ringbuf, tpacket and recv share the work among several"
    )))
}

/// Sets the device to promiscuous mode for the lifetime of the result, if the plan requests it.
pub(super) fn promiscuous(plan: &Plan) -> Result<Option<Promiscuous>, Error> {
    let wanted = plan.promiscuous.then(|| Promiscuous::start(plan.ifindex));
    wanted
        .transpose()
        .map_err(|error| Error::failed(format!("{}: promiscuous mode", plan.interface), error))
}

/// Checks that the schema's rows are about flows.
pub(super) fn only_flows(name: &str, plan: &Plan) -> Result<(), Error> {
    if plan.schema.flow_columns().is_some() {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "{}: {name} hands up flows, not packets; xdp-ringbuf, tpacket, recv and af-xdp hand up each packet",
        plan.schema.name
    )))
}

/// The CPUs on the NUMA node of the plan's device.
fn near(plan: &Plan) -> Result<Vec<u32>, Error> {
    let sysfs = Path::new(numa::SYSFS);
    let topology = Topology::read(sysfs)
        .map_err(|error| Error::failed("asking which CPUs and nodes there are", error))?;
    Ok(topology.near(numa::device_node(sysfs, &plan.interface)))
}

/// The part of the plan's flow limit for each CPU.
fn share(plan: &Plan) -> Result<u32, Error> {
    let cpus = libbpf_rs::num_possible_cpus()
        .map_err(|error| Error::failed("counting the CPUs", error))?;
    let part = plan.options.limits.most_flows / cpus.max(1);
    Ok(u32::try_from(part).unwrap_or(u32::MAX).max(1))
}

/// Activates the plan's model before the first packet.
pub(super) fn connect(plan: &Plan, plane: &mut FlowPlane) -> Result<(), Error> {
    match (&plan.model, plane.take_models()) {
        (Some(slot), Some(models)) => slot.connect(models, plan.schema.rules),
        _ => Ok(()),
    }
}

/// Writes the rows of flows that were counted in the kernel.
#[derive(Debug)]
pub(super) struct PlaneWork {
    rows: RowWriter<Flow>,
    exported: OutputCounters,
    /// The account when it was last read.
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

    /// Completes the output, when no table holds a flow any more. If the account cannot be read, the last one is used.
    pub(super) fn finish(self, account: Result<Account, Error>) -> FinalCounters {
        let written = WriteResult::new(self.exported, self.rows.finish());
        finish(account, &self.account, written)
    }
}

/// The final counters, and an error if the run failed.
pub(super) type FinalCounters = (LiveCounters, Result<(), String>);

/// The counters so far. Packets that are not exported are assumed to be in a table.
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

/// The final counters, when the tables are empty. If the account cannot be read, the previous one is used.
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

/// Converts an account to the counters of all datapaths.
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
        // A packet lost for lack of room is counted only as lost.
        packets: account.packets - account.lost(),
        bytes: account.bytes,
        lone_fragments: account.lone_fragments,
        ..left_out(account)
    }
}

/// The frames that a program left out, in the form of input counters.
pub(super) fn left_out(account: &Account) -> InputCounters {
    let mut seen = InputCounters {
        packets: account.left_out(),
        filtered: account.filtered,
        sampled_out: account.sampled_out,
        rate_limited: account.rate_limited,
        ..InputCounters::default()
    };
    // The kernel's programs see only Ethernet, so the first reason, the link type, never occurs.
    for (&why, &refused) in REFUSALS[1..].iter().zip(&account.refused) {
        seen.refuse_many(why, refused);
    }
    seen
}
