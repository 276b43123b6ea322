//! Receives steered datagrams, makes every subscriber's copy of each, and has them sent.

use std::collections::{BTreeMap, BTreeSet};

use datapath::Error;
use netdev::{Link, NextHop};
use xsk::{Bind, Frame, Mode};

use super::copies::{Copies, StagedCopy};
use super::headers::Headers;
use super::steering::{Steering, slow};
use super::tag::SteeredDatagram;
use crate::counters::{DropReason, Traffic};
use crate::plan::{MAX_STREAMS, Plan, Stream, Subscriber, drop_reason};

/// One memory for all sockets: a payload is copied once for each subscriber but the last.
const FRAMES: u32 = 8192;
const FRAME_SIZE: u32 = 4096;
/// Of these frames, what all receiving sockets together may hold.
const RECEIVING: usize = FRAMES as usize / 2;
/// The most one of them holds: its rings have no more room.
const RING: usize = 2048;
/// Datagrams taken from a socket before the next socket's turn.
const BATCH: usize = 64;
/// Where payloads are in copies: on a cache line, after the longest headers.
const PAYLOAD_AT: usize = 64;

type Pump = xsk::Pump<StagedCopy>;

#[derive(Debug)]
pub(super) struct Engine {
    pump: Pump,
    copies: Copies,
    /// By stream slot.
    streams: Vec<StreamFanout>,
    steering: Steering,
    /// Where the steering program finds the sockets of the queues that are received from: interface and queue.
    places: BTreeMap<(u32, u32), u32>,
}

/// Where one stream's copies go.
#[derive(Debug, Default)]
struct StreamFanout {
    planned: bool,
    /// Those that are sent to come last.
    members: Vec<Member>,
    subscribers: BTreeSet<u32>,
    seen: Traffic,
    /// Losses of all ports when the stream came.
    lost_before: u64,
}

#[derive(Debug)]
struct Member {
    subscriber: u32,
    egress: Result<EgressPort, DropReason>,
}

#[derive(Debug)]
struct EgressPort {
    port: usize,
    mtu: usize,
    headers: Headers,
}

impl Engine {
    pub(super) fn new(steering: Steering) -> Result<Self, Error> {
        let pump = Pump::new(FRAMES, FRAME_SIZE)
            .map_err(|error| Error::failed("AF_XDP packet memory", error))?;
        let mut streams = Vec::new();
        streams.resize_with(MAX_STREAMS as usize, StreamFanout::default);
        Ok(Self {
            pump,
            copies: Copies::new(),
            streams,
            steering,
            places: BTreeMap::new(),
        })
    }

    /// Opens what a plan needs, and sends to its subscribers from now on. Streams that only the
    /// old plan had go on until [`Self::retire`]. Returns the streams that cannot be relayed here, and why.
    pub(super) fn admit(
        &mut self,
        plan: &Plan,
        links: &BTreeMap<u32, Link>,
    ) -> BTreeMap<u32, String> {
        self.close_absent(links);
        let ingress = plan.streams.iter().flat_map(|stream| &stream.interfaces);
        let ingress = ingress.collect::<BTreeSet<_>>();
        for link in ingress.into_iter().filter_map(|index| links.get(index)) {
            // Where no socket receives, the program leaves datagrams to the network stack.
            if let Err(error) = self.receive_from(link.index, link.rx_queues.max(1)) {
                tracing::warn!(interface = link.name, %error, "userspace relays what comes in by it");
            }
        }
        let mut refused = BTreeMap::new();
        for stream in &plan.streams {
            if let Err(error) = self.admit_stream(stream) {
                refused.insert(stream.id.0, error.to_string());
            }
        }
        refused
    }

    /// Whether streams go on here that the plan does not have.
    pub(super) fn has_others(&self, plan: &Plan) -> bool {
        let planned = |id| plan.streams.iter().any(|stream| stream.id.0 == id);
        (0..)
            .zip(&self.streams)
            .any(|(id, fan)| fan.planned && !planned(id))
    }

    /// Forgets the streams that the plan does not have.
    pub(super) fn retire(&mut self, plan: &Plan) {
        let kept: BTreeSet<u32> = plan.streams.iter().map(|stream| stream.id.0).collect();
        for (id, fan) in (0..).zip(&mut self.streams) {
            if !kept.contains(&id) {
                fan.planned = false;
                fan.members.clear();
                fan.subscribers.clear();
            }
        }
    }

    /// Relays what has arrived; returns how many datagrams that were.
    pub(super) fn round(&mut self) -> usize {
        let (streams, copies) = (&mut self.streams, &mut self.copies);
        let received = self.pump.receive_each(BATCH, |pump, frame| {
            fan_out(pump, streams, copies, frame);
        });
        flush(&mut self.pump, copies);
        received
    }

    /// Relays all that had arrived when this was called.
    pub(super) fn drain(&mut self) {
        for _ in 0..=RING / BATCH {
            if self.round() == 0 {
                break;
            }
        }
    }

    /// Relays all that had arrived, for the last time.
    pub(super) fn finish(&mut self) {
        self.drain();
        let copies = &mut self.copies;
        self.pump
            .give_up(|copy, outcome| copies.count(copy, outcome));
    }

    /// Whether a device holds up copies, so that it must be asked again.
    pub(super) fn is_waiting(&self) -> bool {
        self.pump.is_waiting()
    }

    /// What copies have been made of, since the stream came; and how many datagrams the sockets
    /// have lost since then, of this stream and others.
    pub(super) fn seen(&self, stream: u32) -> (Traffic, u64) {
        let Some(fan) = self.streams.get(stream as usize) else {
            return Default::default();
        };
        (fan.seen, self.pump.dropped() - fan.lost_before)
    }

    pub(super) fn copies(&self) -> &Copies {
        &self.copies
    }

    /// How many frames were lost with devices that are gone.
    pub(super) fn lost_frames(&self) -> usize {
        self.pump.lost_frames()
    }

    /// Closes the ports of devices that are gone. What was to leave by them is dropped.
    fn close_absent(&mut self, links: &BTreeMap<u32, Link>) {
        let is_absent = |port: &xsk::Port<StagedCopy>| !links.contains_key(&port.ifindex());
        while let Some(index) = self.pump.ports.iter().position(is_absent) {
            // What has arrived is relayed first.
            self.drain();
            let port = &self.pump.ports[index];
            let queue = (port.ifindex(), port.queue());
            if self.places.remove(&queue).is_some() {
                self.steering.close(queue);
            }
            let copies = &mut self.copies;
            let count = |copy, outcome| copies.count(copy, outcome);
            self.pump.close(index, count);
            let members = self.streams.iter_mut().flat_map(|fan| &mut fan.members);
            for member in members {
                match &mut member.egress {
                    Ok(egress) if egress.port == index => member.egress = Err(DropReason::Transmit),
                    Ok(egress) if egress.port > index => egress.port -= 1,
                    _ => {}
                }
            }
        }
    }

    fn receive_from(&mut self, ifindex: u32, queues: u32) -> Result<(), Error> {
        for queue in 0..queues {
            let index = match self.port(ifindex, queue) {
                Ok(index) => index,
                // A device may have fewer queues in use than it has.
                Err(xsk::Error::NoQueue { .. }) if queue > 0 => break,
                Err(error) => return Err(error.into()),
            };
            if !self.pump.ports[index].receives() {
                self.start_receiving(index)?;
            }
        }
        Ok(())
    }

    fn start_receiving(&mut self, index: usize) -> Result<(), Error> {
        let receiving = |pump: &Pump, port: usize| port == index || pump.ports[port].receives();
        let ports = 0..self.pump.ports.len();
        let ports: Vec<usize> = ports.filter(|port| receiving(&self.pump, *port)).collect();
        let quota = (RECEIVING / ports.len().max(1)).clamp(BATCH, RING);
        for port in ports {
            self.pump.set_quota(port, quota);
        }
        let port = &self.pump.ports[index];
        let is_free = |place: &u32| !self.places.values().any(|taken| taken == place);
        let place = (0..).find(is_free).unwrap_or(u32::MAX);
        self.steering.open(place, port)?;
        self.places.insert((port.ifindex(), port.queue()), place);
        Ok(())
    }

    /// The place of the port of a queue, which is opened if it is not. In copy mode, which every driver
    /// has.
    fn port(&mut self, ifindex: u32, queue: u32) -> Result<usize, xsk::Error> {
        let mut ports = self.pump.ports.iter();
        match ports.position(|port| (port.ifindex(), port.queue()) == (ifindex, queue)) {
            Some(index) => Ok(index),
            None => self.pump.open(Bind::new(ifindex, queue, Mode::Copy)),
        }
    }

    fn admit_stream(&mut self, stream: &Stream) -> Result<(), Error> {
        let mut members = Vec::new();
        for subscriber in &stream.subscribers {
            members.extend(self.member(subscriber)?);
        }
        members.sort_by_key(|member| member.egress.is_ok());
        let lost = self.pump.dropped();
        let Some(fan) = self.streams.get_mut(stream.id.0 as usize) else {
            return Ok(());
        };
        if !fan.planned {
            *fan = StreamFanout {
                planned: true,
                lost_before: lost,
                ..StreamFanout::default()
            };
        }
        let subscribers = stream.subscribers.iter().map(|one| one.id.0).collect();
        for entering in BTreeSet::difference(&subscribers, &fan.subscribers) {
            self.copies.restart(*entering);
        }
        fan.subscribers = subscribers;
        fan.members = members;
        Ok(())
    }

    /// `None` for one that is userspace's to send to and to count: of this machine's own, or behind a device that
    /// sends no Ethernet frames.
    fn member(&mut self, subscriber: &Subscriber) -> Result<Option<Member>, Error> {
        let egress = match subscriber.next_hop {
            NextHop::Ready {
                ifindex,
                source_mac,
                destination_mac,
                mtu,
                ..
            } if slow(ifindex).is_none() => Ok(EgressPort {
                port: self.port(ifindex, 0)?,
                mtu: mtu as usize,
                headers: Headers::new(subscriber, source_mac, destination_mac),
            }),
            // Userspace sends it copies.
            NextHop::Ready { .. } => return Ok(None),
            NextHop::Unresolved(_) => match drop_reason(&subscriber.next_hop) {
                Some(reason) => Err(reason),
                None => return Ok(None),
            },
        };
        let subscriber = subscriber.id.0;
        Ok(Some(Member { subscriber, egress }))
    }
}

fn flush(pump: &mut Pump, copies: &mut Copies) {
    pump.flush(|copy, outcome| copies.count(copy, outcome));
}

/// Makes the copies of one datagram; the last is made in the frame that it came in.
fn fan_out(pump: &mut Pump, streams: &mut [StreamFanout], copies: &mut Copies, mut frame: Frame) {
    let steered = SteeredDatagram::read(&pump.umem, &mut frame);
    let Some((steered, fan)) = steered.and_then(|steered| {
        let fan = streams.get_mut(steered.stream as usize)?;
        Some((steered, fan))
    }) else {
        return pump.free.push(frame);
    };
    let length = steered.origin.payload_length;
    fan.seen.add(Traffic {
        packets: 1,
        bytes: length.into(),
    });
    let mut original = Some(frame);
    let last = fan.members.len().saturating_sub(1);
    for (number, member) in fan.members.iter().enumerate() {
        let egress = match &member.egress {
            Ok(egress) if egress.headers.packet_length(length) > egress.mtu => {
                Err(DropReason::TooBig)
            }
            Ok(egress) => Ok(egress),
            Err(reason) => Err(*reason),
        };
        let subscriber = member.subscriber;
        let made = egress.and_then(|egress| {
            let last = number == last;
            let frame = make(pump, copies, &mut original, last, steered, &egress.headers);
            frame
                .map(|frame| (egress, frame))
                .ok_or(DropReason::Transmit)
        });
        match made {
            Ok((egress, frame)) => {
                let bytes = length;
                pump.ports[egress.port].stage(frame, StagedCopy { subscriber, bytes });
            }
            Err(reason) => copies.dropped(subscriber, reason),
        }
    }
    pump.free.extend(original);
}

/// One copy, in a frame of its own or, for the last, in the original's.
fn make(
    pump: &mut Pump,
    copies: &mut Copies,
    original: &mut Option<Frame>,
    last: bool,
    steered: SteeredDatagram,
    headers: &Headers,
) -> Option<Frame> {
    let payload = usize::from(steered.origin.payload_length);
    let whole = headers.len() + payload;
    let mut copy;
    if last {
        copy = original.take()?;
        if !copy.set(steered.payload_at - headers.len(), whole) {
            return None;
        }
    } else {
        let source = original.as_mut()?;
        copy = free_frame(pump, copies)?;
        if !source.set(steered.payload_at, payload) || !copy.set(PAYLOAD_AT - headers.len(), whole)
        {
            pump.free.push(copy);
            return None;
        }
        let umem = &pump.umem;
        umem.bytes_mut(&mut copy)[headers.len()..].copy_from_slice(umem.bytes(source));
    }
    headers.write(steered.origin, pump.umem.bytes_mut(&mut copy));
    Some(copy)
}

/// A frame that nobody uses; when there is none, one that a device gives back.
fn free_frame(pump: &mut Pump, copies: &mut Copies) -> Option<Frame> {
    if pump.free.is_empty() {
        flush(pump, copies);
    }
    pump.free.pop()
}
