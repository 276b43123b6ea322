//! One thread's work: receives frames from its queues, processes them in batches, and sends them.

use std::hash::BuildHasher;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::Error;
use foldhash::fast::FixedState;
use netdev::Link;
use packet::{ethernet, ethertype, ipv4, ipv6, protocol};
use xsk::{Bind, Frame, Mode, Pump, Umem};

use super::counters::{Counters, PuntReason};
use super::gate::Gate;
use super::reinject::PuntSender;
use super::steering::Steering;
use crate::cpu::Hops;
use crate::engine::{Decision, Processor, Verdict, Worker};
use crate::forward::{Adjacency, Family, Forwarding, Member, Punt};
use crate::gpu::cpu_fallback::{self, FallbackProcessor};
use crate::rewrite;

/// Receive frames of a socket.
pub(super) const RX_FRAMES: usize = 2048;
/// Ethernet's minimum frame length without the checksum: padding up to it is kept.
const MIN_FRAME_LEN: usize = 60;
/// Maximum sleep of a thread before it checks whether to stop.
const MAX_SLEEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Forwarder {
    pump: Pump,
    /// Of each port of the pump.
    egress: Vec<Egress>,
    batch: usize,
    wait: Duration,
    worker: Worker<FallbackProcessor>,
    punt_sender: Option<PuntSender>,
    gate: Arc<Gate>,
    seed: u64,
    counters: Counters,
    received: Vec<Frame>,
    /// The frames of the current batch, with their ingress devices.
    batch_frames: Vec<(Frame, u32)>,
    /// When the first of them arrived.
    since: Instant,
}

/// What a thread works with, beside its tables.
#[derive(Debug)]
pub(super) struct Setup {
    /// The most packets that are decided about together, and how long the first of them waits for others.
    pub(super) batch: usize,
    pub(super) wait: Duration,
    /// Of the hash of flows.
    pub(super) seed: u64,
    /// Of every device the queue of the first number, and each one the second number after it.
    pub(super) queues: (usize, usize),
    pub(super) gate: Arc<Gate>,
}

/// The device that a port sends by.
#[derive(Clone, Copy, Debug)]
struct Egress {
    ifindex: u32,
    mtu: u32,
}

/// What becomes of a frame.
enum End {
    /// To a neighbour, by this port.
    Send(usize, Adjacency),
    Drop(Drop),
    Punt(PuntReason),
}

enum Drop {
    Rule,
    Route,
    /// A rule may drop it, and the kernel has none.
    Unfiltered,
}

impl Forwarder {
    pub(super) fn open(
        lookup: FallbackProcessor,
        setup: Setup,
        devices: &[Link],
        steering: &Steering,
        punt_sender: Option<PuntSender>,
    ) -> Result<Self, Error> {
        let (batch, (number, of)) = (setup.batch, setup.queues);
        let queues: Vec<(&Link, u32)> = devices
            .iter()
            .flat_map(|link| (0..link.rx_queues.max(1)).map(move |queue| (link, queue)))
            .filter(|(_, queue)| *queue as usize % of == number)
            .collect();
        let longest = devices.iter().map(|link| link.mtu).max().unwrap_or(0);
        let size = if longest <= 1600 { 2048 } else { 4096 };
        // As many to send as to receive into.
        let frames = u32::try_from(2 * RX_FRAMES * queues.len().max(1)).unwrap_or(u32::MAX);
        let pump = Pump::new(frames, size)
            .map_err(|error| Error::failed("AF_XDP packet memory", error))?;
        let mut all = Self {
            pump,
            egress: Vec::new(),
            batch,
            wait: setup.wait,
            worker: Worker::new(lookup, batch),
            punt_sender,
            gate: setup.gate,
            seed: setup.seed,
            counters: Counters::default(),
            received: Vec::with_capacity(batch),
            batch_frames: Vec::with_capacity(batch),
            since: Instant::now(),
        };
        for (at, (link, queue)) in queues.into_iter().enumerate() {
            // In copy mode, which every driver with native XDP has.
            match all.pump.open(Bind::new(link.index, queue, Mode::Copy)) {
                // A device may have fewer queues in use than it has.
                Err(xsk::Error::NoQueue { .. }) if queue as usize >= of => {}
                opened => {
                    let port = opened?;
                    all.pump.set_quota(port, RX_FRAMES);
                    let index = u32::try_from(at * of + number).unwrap_or(u32::MAX);
                    steering.steer(index, &all.pump.ports[port])?;
                    all.egress.push(Egress {
                        ifindex: link.index,
                        mtu: link.mtu,
                    });
                }
            }
        }
        Ok(all)
    }

    /// Decides by these tables from the next batch on.
    pub(super) fn look_up_by(&mut self, lookup: FallbackProcessor) {
        self.worker.replace(lookup);
    }

    /// Forwards what has come, unless it waits for more; how many frames came.
    ///
    /// # Errors
    /// A device was lost that nothing is behind: what has come is dropped.
    pub(super) fn round(&mut self) -> Result<usize, cpu_fallback::Error> {
        let (mut all, mut decided) = (0, Ok(()));
        let mut received = mem::take(&mut self.received);
        for port in 0..self.pump.ports.len() {
            let room = self.batch - self.batch_frames.len();
            all += self.pump.receive(port, room, &mut received);
            if self.batch_frames.is_empty() && !received.is_empty() {
                self.since = Instant::now();
            }
            let from = self.egress[port].ifindex;
            self.batch_frames
                .extend(received.drain(..).map(|frame| (frame, from)));
            if self.is_time() {
                let forwarded = self.forward();
                decided = decided.and(forwarded);
            }
        }
        self.received = received;
        let counters = &mut self.counters;
        self.pump.flush(|(), outcome| counters.sent(outcome));
        decided.map(|()| all)
    }

    /// Whether the batch is complete or has waited long enough.
    fn is_time(&self) -> bool {
        let batch_frames = self.batch_frames.len();
        batch_frames == self.batch || batch_frames > 0 && self.since.elapsed() >= self.wait
    }

    /// Processes the batch.
    fn forward(&mut self) -> Result<(), cpu_fallback::Error> {
        let mut batch_frames = mem::take(&mut self.batch_frames);
        let frames = batch_frames
            .iter()
            .map(|(frame, _)| self.pump.umem.bytes(frame));
        let decided = self.worker.decide(frames);
        for (number, (frame, from)) in batch_frames.drain(..).enumerate() {
            if decided.is_ok() {
                self.dispose(number, frame, from);
            } else {
                self.counters.drops_undecided += 1;
                self.pump.free.push(frame);
            }
        }
        self.batch_frames = batch_frames;
        decided.map(drop)
    }

    /// Forwards what had come, for the last time.
    pub(super) fn finish(&mut self) -> Counters {
        self.wait = Duration::ZERO;
        for _ in 0..=RX_FRAMES {
            match self.round() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => tracing::error!("{error}"),
            }
        }
        // Ended with its device: nobody sends these.
        let counters = &mut self.counters;
        self.pump.give_up(|(), outcome| counters.sent(outcome));
        self.punt_sender = None;
        self.counters()
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            drops_queue_full: self.pump.dropped(),
            ..self.counters
        }
    }

    /// Sleeps until a frame arrives, at most until the batch has waited long enough.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        let timeout = if self.batch_frames.is_empty() {
            if let Err(error) = self.worker.processor_mut().idle() {
                return Err(io::Error::other(error));
            }
            MAX_SLEEP
        } else {
            // Whole milliseconds, cut off: a sleep of less would end too late.
            let rest = MAX_SLEEP.min(self.wait.saturating_sub(self.since.elapsed()));
            Duration::from_millis(u64::from(rest.subsec_millis()))
        };
        // A device that is gone sends nothing; its frames were counted.
        self.pump.wait(timeout).map(drop)
    }

    /// Sends, drops or punts a frame of the batch.
    fn dispose(&mut self, number: usize, mut frame: Frame, from: u32) {
        let decision = self.worker.decisions()[number];
        let bytes = self.pump.umem.bytes(&frame);
        let hops = self.worker.processor().hops();
        let end = self.end(bytes, decision, hops, from);
        let end = match end {
            End::Send(port, to) if prepare(&self.pump.umem, &mut frame, &to) => {
                return self.pump.ports[port].stage(frame, ());
            }
            End::Send(..) => End::Punt(PuntReason::TtlExpired),
            end => end,
        };
        match end {
            End::Drop(Drop::Rule) => self.counters.dropped_by_rule += 1,
            End::Drop(Drop::Route) => self.counters.dropped_by_route += 1,
            End::Drop(Drop::Unfiltered) => self.counters.dropped_unfiltered += 1,
            End::Punt(why) => self.punt(&frame, from, why),
            End::Send(..) => {}
        }
        self.pump.free.push(frame);
    }

    /// What becomes of a frame, before its TTL is looked at. This host's packets pass other rules.
    fn end(&self, bytes: &[u8], decision: Decision, hops: &Hops, from: u32) -> End {
        let family = match bytes.get(12..14) {
            Some([0x86, 0xdd]) => Family::V6,
            _ => Family::V4,
        };
        let meaning = hops.get(family, decision.hop());
        if decision.hop() != lpm::NO_ROUTE && *meaning == Forwarding::Punt(Punt::Local) {
            return End::Punt(PuntReason::Local);
        }
        match decision.verdict() {
            Verdict::Drop => return End::Drop(Drop::Rule),
            Verdict::NoRoute => return End::Punt(PuntReason::NoRoute),
            Verdict::Punt
                if decision.hop() == lpm::NO_ROUTE && self.gate.is_sole_filter(family) =>
            {
                return End::Drop(Drop::Unfiltered);
            }
            Verdict::Punt if decision.hop() == lpm::NO_ROUTE => {
                return End::Punt(PuntReason::Unkeyed);
            }
            Verdict::Punt => return End::Punt(PuntReason::Rule),
            Verdict::Forward => {}
        }
        let meaning = match meaning {
            Forwarding::Group(members) => {
                hops.get(family, choose(members, bytes, family, self.seed))
            }
            meaning => meaning,
        };
        match meaning {
            Forwarding::Neighbour(to) => self.send(bytes, to, family, from),
            Forwarding::Drop if self.gate.is_kernels(from, family) => End::Punt(PuntReason::Policy),
            Forwarding::Drop => End::Drop(Drop::Route),
            Forwarding::Punt(Punt::Local) => End::Punt(PuntReason::Local),
            Forwarding::Punt(Punt::Refused) => End::Punt(PuntReason::Refused),
            Forwarding::Punt(Punt::Device) => End::Punt(PuntReason::Device),
            Forwarding::Punt(Punt::Unresolved) | Forwarding::Group(_) => {
                End::Punt(PuntReason::Unresolved)
            }
        }
    }

    fn send(&self, bytes: &[u8], to: &Adjacency, family: Family, from: u32) -> End {
        let mut ports = self.egress.iter();
        let Some(port) = ports.position(|port| port.ifindex == to.ifindex) else {
            return End::Punt(PuntReason::Device);
        };
        if !self
            .gate
            .is_open(from, to.ifindex, to.vlan.is_some(), family)
        {
            return End::Punt(PuntReason::Policy);
        }
        if packet_length(bytes, family) > to.mtu.min(self.egress[port].mtu) as usize {
            return End::Punt(PuntReason::TooLong);
        }
        End::Send(port, *to)
    }

    fn punt(&mut self, frame: &Frame, from: u32, why: PuntReason) {
        self.counters.punted[why as usize] += 1;
        let bytes = self.pump.umem.bytes(frame);
        let sent = self
            .punt_sender
            .as_ref()
            .is_some_and(|punt_sender| punt_sender.send(from, bytes));
        if !sent {
            self.counters.drops_reinject += 1;
        }
    }
}

/// Bytes of the IP packet in a frame, by its header.
fn packet_length(bytes: &[u8], family: Family) -> usize {
    let half = |at: usize| {
        bytes
            .get(at..at + 2)
            .map_or(0, |two| usize::from(two[0]) << 8 | usize::from(two[1]))
    };
    match family {
        Family::V4 => half(ethernet::HEADER + 2),
        Family::V6 => half(ethernet::HEADER + 4) + ipv6::HEADER,
    }
}

/// Rewrites a frame; false, and no change, when its TTL is used up.
fn prepare(umem: &Umem, frame: &mut Frame, to: &Adjacency) -> bool {
    let (kind, family) = match umem.bytes(frame).get(12..14) {
        Some([0x86, 0xdd]) => (ethertype::IPV6, Family::V6),
        _ => (ethertype::IPV4, Family::V4),
    };
    if rewrite::decrement_ttl(umem.bytes_mut(frame)).is_err() {
        return false;
    }
    // What is behind the packet is not sent on, but for Ethernet's padding.
    let length = ethernet::HEADER + packet_length(umem.bytes(frame), family);
    if frame.len() > length.max(MIN_FRAME_LEN) {
        let _shorter = frame.set(frame.headroom(), length.max(MIN_FRAME_LEN));
    }
    if to.vlan.is_some() {
        // The kernel leaves 256 bytes in front.
        let (start, length) = (frame.headroom(), frame.len());
        let _there = frame.set(start - ethernet::TAG, length + ethernet::TAG);
    }
    rewrite::link_header(umem.bytes_mut(frame), to, kind);
    true
}

/// The member of a group that this packet's flow goes by.
fn choose(members: &[Member], bytes: &[u8], family: Family, seed: u64) -> u16 {
    let all: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
    let mut draw = flow(bytes, family, seed) % all.max(1);
    for member in members {
        let weight = u64::from(member.weight);
        if draw < weight {
            return member.hop.get();
        }
        draw -= weight;
    }
    lpm::NO_ROUTE
}

/// A hash of the five-tuple of a plain packet.
fn flow(bytes: &[u8], family: Family, seed: u64) -> u64 {
    let ip = ethernet::HEADER;
    let (number, addresses, ports) = match family {
        Family::V4 => (ip + 9, ip + 12..ip + 20, ip + ipv4::HEADER),
        Family::V6 => (ip + 6, ip + 8..ip + 40, ip + ipv6::HEADER),
    };
    let number = bytes.get(number).copied().unwrap_or(0);
    let ports = match number {
        protocol::TCP | protocol::UDP => bytes.get(ports..ports + 4),
        _ => None,
    };
    FixedState::with_seed(seed).hash_one((number, bytes.get(addresses), ports))
}

#[cfg(test)]
mod tests {
    use lpm::NextHop;
    use packet::build;

    use super::*;

    #[test]
    fn flows_keep_their_member_and_members_get_their_weight() {
        let member = |number, weight| Member {
            hop: NextHop::new(number).unwrap(),
            weight,
        };
        let members = [member(5, 1), member(6, 3)];
        for (family, from, to) in [
            (Family::V4, "192.0.2.1", "198.51.100.1"),
            (Family::V6, "[2001:db8::1]", "[2001:db8::2]"),
        ] {
            let (mut second, mut same) = (0, 0);
            for port in 1..=4000 {
                let from = format!("{from}:{port}").parse().unwrap();
                let to = format!("{to}:53").parse().unwrap();
                let by = |seed, ttl, payload: &[u8]| {
                    let frame = build::udp(from, to).ttl(ttl).payload(payload).frame();
                    choose(&members, &frame, family, seed)
                };
                let hop = |ttl, payload: &[u8]| by(1, ttl, payload);
                assert_eq!(hop(64, &[1, 2]), hop(9, &[3; 40]), "one flow");
                second += u32::from(hop(64, &[]) == 6);
                same += u32::from(hop(64, &[]) == by(2, 64, &[]));
            }
            assert!((2850..3150).contains(&second), "{second} of 4000");
            // By two seeds that know nothing of each other, 1/16 + 9/16 of all go the same way.
            assert!((2380..2620).contains(&same), "{same} of 4000");
        }
    }
}
