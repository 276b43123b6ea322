//! Merges the parts of a flow that several CPUs have counted into one row.
//!
//! A part waits while another CPU's table has its key. Values that do not depend on the order of packets on different
//! CPUs are exact in a merged flow: counts, sums, extremes, flags, first and last times, the individual first packets,
//! and everything about a direction that only one CPU has seen. The gaps between packets on different CPUs are unknown.
//! They are omitted (null in a row), and the flow has a single active period. Steering both directions to one CPU
//! preserves them.

use hashbrown::HashMap;

use super::classes;
use crate::Key;
use crate::flow::{End, Flow, Periods, Remarks, Step, Timers, Times};

/// Ended parts whose flow may continue on another CPU.
#[derive(Debug, Default)]
pub(super) struct Parts {
    waiting: HashMap<Key, Vec<Flow>, foldhash::fast::RandomState>,
    merged: u64,
}

impl Parts {
    pub(super) fn add(&mut self, part: Flow) {
        self.waiting.entry(part.key).or_default().push(part);
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.waiting.contains_key(key)
    }

    /// The number of parts that were added to another part.
    pub(super) fn merged(&self) -> u64 {
        self.merged
    }

    /// Exports the flows of which no CPU has a part any more. `open` returns the parts in the tables.
    pub(super) fn settle(
        &mut self,
        timers: &Timers,
        steps: usize,
        mut open: impl FnMut(&Key) -> Vec<Flow>,
        export: &mut impl FnMut(Box<Flow>),
    ) {
        let merged = &mut self.merged;
        self.waiting.retain(|key, waiting| {
            let ended = waiting.drain(..).map(|part| (part, false));
            let mut parts: Vec<_> = ended.collect();
            parts.extend(open(key).into_iter().map(|part| (part, true)));
            parts.sort_by_key(|(part, _)| part.first_ns);
            for group in groups(timers, steps, parts) {
                if group.is_open {
                    waiting.extend(group.ended);
                } else {
                    *merged += group.joined;
                    export(Box::new(group.flow));
                }
            }
            !waiting.is_empty()
        });
    }
}

/// Parts of one flow.
struct Group {
    flow: Flow,
    joined: u64,
    /// The parts that have left their tables, if some parts have not.
    ended: Vec<Flow>,
    is_open: bool,
}

/// Groups parts with the same key, sorted by their starts, into flows.
fn groups(timers: &Timers, steps: usize, parts: Vec<(Flow, bool)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (part, is_open) in parts {
        let end = groups
            .last()
            .map(|group| ended_before(timers, &group.flow, &part));
        if let (Some(None), Some(group)) = (end, groups.last_mut()) {
            join(&mut group.flow, part.clone(), steps);
            group.joined += 1;
            group.is_open |= is_open;
            group.ended.extend((!is_open).then_some(part));
            continue;
        }
        if let (Some(Some(end)), Some(group)) = (end, groups.last_mut()) {
            group.flow.end = end;
        }
        groups.push(Group {
            flow: part.clone(),
            joined: 0,
            ended: (!is_open).then_some(part).into_iter().collect(),
            is_open,
        });
    }
    groups
}

/// The reason that a flow has ended before the first packet of this part, if it has. These are the rules of `Timers`,
/// as far as the part retains what they need of its first packet.
fn ended_before(timers: &Timers, flow: &Flow, part: &Flow) -> Option<End> {
    let (due, end) = timers.deadline(flow);
    if part.first_ns >= due {
        return Some(end);
    }
    if part.first_ns.saturating_sub(flow.first_ns) >= timers.active_ns {
        return Some(End::Active);
    }
    let opening = part.closing.initial().filter(|_| !part.midstream);
    let reopened = opening.is_some() && opening != flow.closing.initial() && flow.has_ended_once();
    (timers.linger_ns.is_some() && reopened).then_some(End::Closed)
}

/// Adds a part that started later.
fn join(flow: &mut Flow, mut part: Flow, steps: usize) {
    if part.initiator != flow.initiator {
        turn_round(&mut part);
    }
    flow.steps = join_steps(flow, &part, steps);
    if part.last_ns >= flow.last_ns {
        flow.end = part.end;
    }
    flow.last_ns = flow.last_ns.max(part.last_ns);
    flow.forward.merge(part.forward);
    flow.backward.merge(part.backward);
    flow.gaps = Times::default();
    flow.periods = Periods::new(Times::default(), Times::default(), flow.duration_ns(), 0);
    let remarks = [flow.remarks(), part.remarks()];
    let [earlier, later] = remarks.map(|remarks| remarks.classification);
    flow.remarks = Remarks {
        classification: classes::join(earlier, later),
        ..remarks[0].and(&remarks[1])
    }
    .held();
    flow.closing = flow.closing.and(part.closing);
}

fn turn_round(part: &mut Flow) {
    std::mem::swap(&mut part.forward, &mut part.backward);
    if let Some(remarks) = &mut part.remarks {
        remarks.headless.swap(0, 1);
        remarks.tunnels.swap(0, 1);
    }
    for step in &mut part.steps {
        step.payload = -step.payload;
        step.wire = -step.wire;
    }
}

/// Merges the first packets of both by their times.
fn join_steps(flow: &Flow, part: &Flow, most: usize) -> Vec<Step> {
    let mut timed: Vec<(i64, Step)> = times(flow).chain(times(part)).collect();
    timed.sort_by_key(|(time, _)| *time);
    timed.truncate(most);
    let mut before = flow.first_ns;
    let steps = timed.into_iter().map(|(time, step)| {
        let gap = time.saturating_sub(std::mem::replace(&mut before, time));
        Step {
            gap_ns: u64::try_from(gap).unwrap_or(0),
            ..step
        }
    });
    steps.collect()
}

fn times(flow: &Flow) -> impl Iterator<Item = (i64, Step)> + '_ {
    flow.steps.iter().scan(flow.first_ns, |time, step| {
        *time = time.saturating_add_unsigned(step.gap_ns);
        Some((*time, *step))
    })
}
