//! The open flows, and the rules that end a flow and start the next.
//!
//! The contents of a row depend only on the packets of its flow. A flow ends when a packet arrives after its
//! deadline, or when a sweep finds that the deadline has passed; both use the same deadline. The time of the sweep
//! determines when the row is written, but not its contents.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use super::wheel::{Timer, Wheel};
use super::{End, Flow, Gaps};
use crate::dissect::Packet;
use crate::key::Key;

/// The timeouts that end flows, and the gaps that separate periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// A flow ends after this long without a packet.
    pub idle_ns: i64,
    /// A flow that lasts this long is exported. Its further packets form a new flow.
    pub active_ns: i64,
    /// A closed TCP connection accepts late packets until this long after the last one. With `None`, TCP flags do not
    /// end flows.
    pub linger_ns: Option<i64>,
    pub gaps: Gaps,
}

/// The limits of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of open flows. Above it, the flows with the earliest deadlines are exported early.
    pub most_flows: usize,
    /// The number of first packets per flow that are kept individually.
    pub steps: usize,
    /// Writes an additional row after this many packets of a flow.
    pub early_packets: Option<u64>,
    /// Whether payloads are read.
    pub payloads: bool,
    /// Whether the states of TCP connections are tracked.
    pub connections: bool,
    /// Bytes of each payload in rows about packets.
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

/// The open flows by key.
#[derive(Debug)]
pub struct Table {
    /// Indices into `flows`.
    index: HashTable<u32>,
    flows: Vec<Slot>,
    free: Vec<u32>,
    wheel: Wheel,
    timers: Timers,
    limits: Limits,
    /// Bytes buffered for unfinished ClientHellos in all flows.
    gathered: usize,
    hasher: foldhash::fast::RandomState,
}

#[derive(Debug)]
struct Slot {
    /// Incremented for each flow in this slot, so that a timer of an earlier flow can be recognized.
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

    /// Sets the time of the first packet. Without this call, the first packet sets it.
    pub(crate) fn begin(&mut self, time_ns: i64) {
        self.wheel.begin(time_ns);
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The number of packets in the open flows.
    pub fn packets(&self) -> u64 {
        let flows = self.flows.iter().filter_map(|slot| slot.flow.as_deref());
        flows.map(Flow::packets).sum()
    }

    /// Counts a packet in its flow, and exports the flow that the packet ends.
    #[inline]
    pub fn add(&mut self, packet: &Packet<'_>, export: &mut impl FnMut(Box<Flow>)) {
        self.add_and(packet, export, |_| ());
    }

    /// Like [`Self::add`], but first calls `look` with the flow as it was before the packet.
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

    /// If this packet arrives after the flow's end, exports the flow and starts a new one in the same slot.
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

    /// Exports one flow early: one with the earliest timers that has had no packet recently.
    fn make_room(&mut self, export: &mut impl FnMut(Box<Flow>)) {
        while let Some((timer, place)) = self.wheel.take_first() {
            let Some((due, end)) = self.tenant(timer).map(|flow| self.timers.deadline(flow)) else {
                continue;
            };
            if timer.closing != (end == End::Closed) {
                continue;
            }
            // Later packets have moved the deadline.
            if self.wheel.is_behind(place, due) {
                self.wheel.set(timer, due);
                continue;
            }
            self.remove(timer.place, End::Full, export);
            return;
        }
    }

    /// Exports the flows that cannot contain a packet at or after the horizon.
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
                // A closed flow has a separate closing timer, so its first timer is not set again.
                wheel.set(timer, due);
            }
        });
        self.wheel = wheel;
    }

    /// Exports all flows.
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
    /// The reason that a flow has ended before this packet of the same key, if it has.
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

    /// When a flow ends if no packet follows, and for which reason.
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
