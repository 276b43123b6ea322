//! The flows of the moment, and the rules by which one ends and another starts.
//!
//! What a row says depends on its flow's own packets alone: a flow ends when a packet comes for it
//! too late, or when time has passed it by, and both look at the same deadline. When the sweep comes
//! decides only how long the row waits, not what is in it.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use super::wheel::{Timer, Wheel};
use super::{End, Flow, Gaps};
use crate::dissect::Packet;
use crate::key::Key;

/// When flows end, and what is remembered of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Without a packet for this long, a flow has ended.
    pub idle_ns: i64,
    /// A flow that lasts this long is exported, and goes on as another.
    pub active_ns: i64,
    /// A closed TCP connection takes stragglers for this long after each; `None`: TCP's flags end
    /// no flow.
    pub linger_ns: Option<i64>,
    pub gaps: Gaps,
}

/// How much the table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows at a time; beyond it, those that are due first are exported before their time.
    pub most_flows: usize,
    /// A flow's first packets that are kept one by one.
    pub steps: usize,
    /// Another row after this many packets of a flow.
    pub early_packets: Option<u64>,
    /// Whether payloads are read.
    pub payloads: bool,
    /// Whether the states of connections are followed.
    pub connections: bool,
    /// Bytes of each payload that rows about packets have.
    pub payload_bytes: usize,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            idle_ns: 120_000_000_000,
            active_ns: 1_800_000_000_000,
            linger_ns: Some(5_000_000_000),
            gaps: Gaps::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most_flows: 1_000_000,
            steps: 10,
            early_packets: None,
            payloads: true,
            connections: false,
            payload_bytes: 0,
        }
    }
}

/// Flows by their keys.
#[derive(Debug)]
pub struct Table {
    /// Places in `flows`.
    index: HashTable<u32>,
    flows: Vec<Slot>,
    free: Vec<u32>,
    wheel: Wheel,
    timers: Timers,
    limits: Limits,
    /// Bytes of unfinished ClientHellos in all flows.
    gathered: usize,
    hasher: foldhash::fast::RandomState,
}

#[derive(Debug)]
struct Slot {
    /// Counts the flows that have been here, so that a timer knows whether it is for this one.
    tenant: u32,
    /// On the heap, because a row is moved several times before it is written.
    flow: Option<Box<Flow>>,
}

impl Table {
    pub fn new(timers: Timers, limits: Limits) -> Self {
        Self {
            index: HashTable::new(),
            flows: Vec::new(),
            free: Vec::new(),
            wheel: Wheel::new(timers.idle_ns.max(timers.linger_ns.unwrap_or(0))),
            timers,
            limits,
            gathered: 0,
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Says from when on packets come; else the first one does.
    pub(crate) fn begin(&mut self, time_ns: i64) {
        self.wheel.begin(time_ns);
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Packets in these flows.
    pub fn packets(&self) -> u64 {
        let flows = self.flows.iter().filter_map(|slot| slot.flow.as_deref());
        flows.map(Flow::packets).sum()
    }

    /// Counts a packet under its flow; exports what it ends.
    #[inline]
    pub fn add(&mut self, packet: &Packet<'_>, export: &mut impl FnMut(Box<Flow>)) {
        self.add_and(packet, export, |_| ());
    }

    /// The same, with a look at the packet's flow as it was before.
    pub fn add_and<T>(
        &mut self,
        packet: &Packet<'_>,
        export: &mut impl FnMut(Box<Flow>),
        look: impl FnOnce(&Flow) -> T,
    ) -> Option<T> {
        let hash = self.hasher.hash_one(packet.key);
        let flows = &self.flows;
        let found = self
            .index
            .find(hash, |&place| is_at(flows, place, &packet.key));
        let place = match found {
            Some(&place) => {
                self.turn_over(place, packet, export);
                place
            }
            None => self.insert(hash, packet, export),
        };
        let slot = &mut self.flows[place as usize];
        let flow = slot.flow.as_mut()?;
        let seen = look(flow);
        let was_closed = flow.is_closed();
        flow.add(packet, &self.timers.gaps, self.limits.steps);
        if self.limits.payloads {
            flow.read(packet, &mut self.gathered);
        }
        if self.limits.connections {
            flow.follow(packet);
        }
        if let Some(linger_ns) = self.timers.linger_ns
            && !was_closed
            && flow.is_closed()
        {
            let timer = Timer {
                place,
                tenant: slot.tenant,
                closing: true,
            };
            self.wheel
                .set(timer, flow.last_ns.saturating_add(linger_ns));
        }
        if self.limits.early_packets == Some(flow.packets()) {
            let mut early = flow.clone();
            early.end = End::Early;
            early.contents.close();
            export(early);
        }
        Some(seen)
    }

    /// Exports the flow at this place if this packet comes too late for it, and starts the next.
    fn turn_over(&mut self, place: u32, packet: &Packet<'_>, export: &mut impl FnMut(Box<Flow>)) {
        let slot = &mut self.flows[place as usize];
        let Some(flow) = &mut slot.flow else {
            return;
        };
        if let Some(end) = self.timers.end_before(flow, packet) {
            let mut ended = std::mem::replace(flow, Box::new(Flow::start(packet)));
            slot.tenant = slot.tenant.wrapping_add(1);
            self.watch(place, packet.time_ns);
            ended.end = end;
            self.gathered -= ended.contents.close();
            export(ended);
        }
    }

    /// Sets the timer of a flow that has just started.
    fn watch(&mut self, place: u32, start_ns: i64) {
        let timer = Timer {
            place,
            tenant: self.flows[place as usize].tenant,
            closing: false,
        };
        let due = start_ns.saturating_add(self.timers.idle_ns);
        self.wheel.set(timer, due);
    }

    fn insert(
        &mut self,
        hash: u64,
        packet: &Packet<'_>,
        export: &mut impl FnMut(Box<Flow>),
    ) -> u32 {
        if self.len() >= self.limits.most_flows {
            self.make_room(export);
        }
        let flow = Some(Box::new(Flow::start(packet)));
        let place = if let Some(place) = self.free.pop() {
            self.flows[place as usize].flow = flow;
            place
        } else {
            self.flows.push(Slot { tenant: 0, flow });
            u32::try_from(self.flows.len() - 1).unwrap_or(u32::MAX)
        };
        let (flows, hasher) = (&self.flows, &self.hasher);
        let rehash = |&at: &u32| match &flows[at as usize].flow {
            Some(flow) => hasher.hash_one(flow.key),
            None => 0,
        };
        self.index.insert_unique(hash, place, rehash);
        self.watch(place, packet.time_ns);
        place
    }

    /// Exports one flow before its time: of those whose timers come first, one that has been quiet.
    fn make_room(&mut self, export: &mut impl FnMut(Box<Flow>)) {
        while let Some((timer, place)) = self.wheel.take_first() {
            let Some((due, end)) = self.tenant(timer).map(|flow| self.timers.deadline(flow)) else {
                continue;
            };
            if timer.closing != (end == End::Closed) {
                continue;
            }
            // Packets since have put it off.
            if self.wheel.is_behind(place, due) {
                self.wheel.set(timer, due);
                continue;
            }
            self.remove(timer.place, End::Full, export);
            return;
        }
    }

    /// Exports the flows that no packet at or after the horizon can belong to.
    pub fn sweep(&mut self, horizon_ns: i64, export: &mut impl FnMut(Box<Flow>)) {
        let mut wheel = std::mem::replace(&mut self.wheel, Wheel::new(1));
        wheel.fire(horizon_ns, |wheel, timer| {
            let Some(flow) = self.tenant(timer) else {
                return;
            };
            let (due, end) = self.timers.deadline(flow);
            if due <= horizon_ns {
                self.remove(timer.place, end, export);
            } else if timer.closing == (end == End::Closed) {
                // A closed flow has a timer of its own for that; its first one has done its work.
                wheel.set(timer, due);
            }
        });
        self.wheel = wheel;
    }

    /// Exports everything.
    pub fn drain(&mut self, export: &mut impl FnMut(Box<Flow>)) {
        for slot in &mut self.flows {
            if let Some(mut flow) = slot.flow.take() {
                flow.contents.close();
                export(flow);
            }
        }
        *self = Self::new(self.timers, self.limits);
    }

    fn tenant(&self, timer: Timer) -> Option<&Flow> {
        let slot = self.flows.get(timer.place as usize)?;
        slot.flow.as_deref().filter(|_| slot.tenant == timer.tenant)
    }

    fn remove(&mut self, place: u32, end: End, export: &mut impl FnMut(Box<Flow>)) {
        let slot = &mut self.flows[place as usize];
        let Some(mut flow) = slot.flow.take() else {
            return;
        };
        slot.tenant = slot.tenant.wrapping_add(1);
        let hash = self.hasher.hash_one(flow.key);
        if let Ok(entry) = self.index.find_entry(hash, |&at| at == place) {
            entry.remove();
        }
        self.free.push(place);
        flow.end = end;
        self.gathered -= flow.contents.close();
        export(flow);
    }
}

impl Timers {
    /// Why a flow has ended before this packet of the same key, if it has.
    fn end_before(&self, flow: &Flow, packet: &Packet<'_>) -> Option<End> {
        let (due, end) = self.deadline(flow);
        if packet.time_ns >= due {
            return Some(end);
        }
        if packet.time_ns.saturating_sub(flow.first_ns) >= self.active_ns {
            return Some(End::Active);
        }
        (self.linger_ns.is_some() && flow.is_reopened_by(packet)).then_some(End::Closed)
    }

    /// When a flow ends if nothing more comes, and why then.
    pub(crate) fn deadline(&self, flow: &Flow) -> (i64, End) {
        match self.linger_ns {
            Some(linger_ns) if flow.is_closed() => {
                (flow.last_ns.saturating_add(linger_ns), End::Closed)
            }
            _ => (flow.last_ns.saturating_add(self.idle_ns), End::Idle),
        }
    }
}

#[inline]
fn is_at(flows: &[Slot], place: u32, key: &Key) -> bool {
    let flow = &flows[place as usize].flow;
    flow.as_ref().is_some_and(|flow| flow.key == *key)
}

#[cfg(test)]
mod tests;
