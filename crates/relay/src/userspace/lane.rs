//! One stream in a worker: what comes in, whether it may, and on to the subscribers.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::ops::Range;
use std::sync::Arc;

use sys::mmsg::RecvInfo;

use super::fan_out::{FanOut, Outlet, Train};
use super::intake::Intake;
use super::labour::{Labour, Parity};
use super::losses::{Losses, Stack};
use super::policing::Policing;
use super::runs;
use super::tally::Tally;
use crate::counters::{DropReason, StreamCounters, SubscriberCounters, Traffic};
use crate::handover::Handing;
use crate::plan::{self, StreamId};

/// A socket a worker reads for a stream.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) socket: Arc<UdpSocket>,
    pub(crate) role: Role,
}

/// What arrives at an input.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// The stream itself.
    Ingest,
    /// What a fast path diverts during a hand-over; it is told how much of that is done.
    Shadow(Arc<Handing>),
    /// Copies of what a fast path forwards, for subscribers on this machine.
    Copies,
}

/// What a worker relays of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) stream: plan::Stream,
    pub(crate) inputs: Vec<Input>,
}

impl Work {
    /// The stream from its ingest socket.
    pub(crate) fn ingest(stream: plan::Stream) -> Self {
        let input = Input {
            socket: stream.socket.clone(),
            role: Role::Ingest,
        };
        Self {
            stream,
            inputs: vec![input],
        }
    }
}

#[derive(Debug)]
pub(super) struct Lane {
    id: StreamId,
    inputs: Vec<Watched>,
    interfaces: Vec<u32>,
    min_ttl: u8,
    policing: Policing,
    labour: Labour,
    fan_out: FanOut,
    received: Traffic,
    /// Datagrams offered to the subscribers, and those refused.
    tally: Tally,
    copies_lost: u64,
    /// Set when the stream leaves this worker, which lets go of it between two batches.
    pub(super) leaving: bool,
}

#[derive(Debug)]
struct Watched {
    input: Input,
    losses: Losses,
}

/// The buffers a worker sends with.
#[derive(Debug)]
pub(super) struct Workshop {
    pub(super) outlet: Outlet,
    /// Where trains are put together; absent where datagrams go one by one.
    pub(super) staging: Option<Vec<u8>>,
}

impl Lane {
    pub(super) fn new(work: &Work, stack: &Arc<Stack>, now_ns: u64) -> Self {
        let stream = &work.stream;
        Self {
            id: stream.id,
            inputs: watch(&work.inputs, Vec::new(), stack),
            interfaces: stream.interfaces.clone(),
            min_ttl: stream.min_ttl,
            policing: Policing::new(&stream.source, stream.limits, now_ns),
            labour: Labour::new(&stream.work),
            fan_out: FanOut::new(stream, |_| Tally::default()),
            received: Traffic::default(),
            tally: Tally::default(),
            copies_lost: 0,
            leaving: false,
        }
    }

    /// Moves to changed work; the counts of what stays go on.
    pub(super) fn update(&mut self, work: &Work, stack: &Arc<Stack>, now_ns: u64, alone: bool) {
        self.count_losses(alone);
        let stream = &work.stream;
        self.inputs = watch(&work.inputs, std::mem::take(&mut self.inputs), stack);
        self.interfaces.clone_from(&stream.interfaces);
        self.min_ttl = stream.min_ttl;
        self.policing.update(&stream.source, stream.limits, now_ns);
        self.labour.update(&stream.work);
        let known: BTreeMap<_, _> = self
            .fan_out
            .tallies()
            .map(|(slot, tally)| (slot, *tally))
            .collect();
        self.fan_out = FanOut::new(stream, |slot| known.get(&slot).copied().unwrap_or_default());
    }

    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    /// What it reads.
    pub(super) fn inputs(&self) -> Vec<Input> {
        let input = |watched: &Watched| watched.input.clone();
        self.inputs.iter().map(input).collect()
    }

    /// How many received datagrams to relay before others may look at the lane: about a
    /// millisecond of sending.
    pub(super) fn stride(&self) -> usize {
        let sending = (512 / self.fan_out.len().max(1)).max(1);
        sending.min(self.labour.stride())
    }

    /// Relays datagrams of the intake that came from the input with this socket.
    pub(super) fn relay(
        &mut self,
        socket: &Arc<UdpSocket>,
        intake: &Intake,
        range: Range<usize>,
        workshop: &mut Workshop,
        now_ns: u64,
    ) {
        let Some(at) = self
            .inputs
            .iter()
            .position(|watched| Arc::ptr_eq(&watched.input.socket, socket))
        else {
            return;
        };
        let copies = matches!(self.inputs[at].input.role, Role::Copies);
        let mut seen = 0;
        let mut trains = Vec::with_capacity(range.len());
        for (received, payload) in range.filter_map(|index| intake.get(index)) {
            let train = train(received, payload);
            seen += train.packets();
            if copies {
                trains.push(train);
            } else if let Some(admitted) = self.admit(received, train, now_ns) {
                trains.push(admitted);
            }
        }
        let parities = if copies {
            Vec::new()
        } else {
            self.labour.on(&trains)
        };
        self.send(&trains, copies, workshop);
        if !parities.is_empty() {
            let trains: Vec<_> = parities.iter().map(Parity::train).collect();
            self.send(&trains, copies, workshop);
        }
        self.publish(at, seen);
    }

    /// The part of a train that may pass; counts the rest by reason.
    fn admit<'a>(
        &mut self,
        received: &RecvInfo,
        train: Train<'a>,
        now_ns: u64,
    ) -> Option<Train<'a>> {
        let packets = train.packets();
        self.received.add(Traffic {
            packets,
            bytes: train.payload.len() as u64,
        });
        let Some(source) = received
            .source
            .filter(|_| self.may_arrive_on(received.ifindex))
        else {
            self.tally.dropped(DropReason::SourceDenied, packets);
            return None;
        };
        let (admitted, refused) = self.policing.admit(source, packets, now_ns);
        if let Some(reason) = refused {
            self.tally.dropped(reason, packets - admitted);
        }
        if train.ttl < self.min_ttl {
            self.tally.dropped(DropReason::TtlExceeded, admitted);
            return None;
        }
        let train = train.first(admitted)?;
        self.tally.passed(admitted, train.payload.len());
        Some(train)
    }

    fn may_arrive_on(&self, ifindex: Option<u32>) -> bool {
        self.interfaces.is_empty() || ifindex.is_some_and(|index| self.interfaces.contains(&index))
    }

    fn send(&mut self, trains: &[Train<'_>], local_only: bool, workshop: &mut Workshop) {
        let Workshop { outlet, staging } = workshop;
        match staging {
            Some(staging) => {
                let joined = runs::join(trains, self.fan_out.smallest_limit(), staging);
                self.fan_out.send(&joined, local_only, outlet);
            }
            None if trains.iter().any(|train| train.segment.is_some()) => {
                let single: Vec<_> = trains.iter().copied().flat_map(Train::cut).collect();
                self.fan_out.send(&single, local_only, outlet);
            }
            None => self.fan_out.send(trains, local_only, outlet),
        }
    }

    /// What is before the shadow socket's first datagram is sent.
    pub(super) fn begin(&self, shadow: &Arc<UdpSocket>) {
        for watched in &self.inputs {
            if let Role::Shadow(handing) = &watched.input.role
                && Arc::ptr_eq(&watched.input.socket, shadow)
            {
                handing.begin();
            }
        }
    }

    /// Tells the fast path how much of what it diverted is done.
    fn publish(&mut self, input: usize, seen: u64) {
        let Role::Shadow(handing) = self.inputs[input].input.role.clone() else {
            return;
        };
        // What the queue lost is done with as well: the fast path must not wait for it.
        self.count_losses(false);
        handing.add_done(seen);
    }

    fn count_losses(&mut self, alone: bool) {
        for watched in &mut self.inputs {
            let alone = alone && matches!(watched.input.role, Role::Ingest);
            let lost = watched.losses.take(&watched.input.socket, alone);
            let sum = lost.bad_checksum + lost.queue_full;
            if matches!(watched.input.role, Role::Copies) {
                self.copies_lost += sum;
                continue;
            }
            if sum == 0 {
                continue;
            }
            self.tally
                .dropped(DropReason::BadChecksum, lost.bad_checksum);
            self.tally.dropped(DropReason::QueueFull, lost.queue_full);
            self.received.packets += sum;
            if let Role::Shadow(handing) = &watched.input.role {
                handing.add_done(sum);
            }
        }
    }

    /// Everything counted up to now; `alone` when the worker has no other stream.
    pub(super) fn counters(&mut self, alone: bool) -> StreamCounters {
        self.count_losses(alone);
        let subscribers = self.fan_out.tallies().map(|(slot, tally)| {
            let counters = SubscriberCounters {
                delivered: tally.traffic(),
                drops: tally.drops(),
            };
            (slot, counters)
        });
        StreamCounters {
            received: self.received,
            forwarded: self.tally.traffic(),
            passed: Traffic::default(),
            drops: self.tally.drops(),
            copies_lost: self.copies_lost,
            latched: self.policing.latched(),
            subscribers: subscribers.collect(),
        }
    }
}

/// Inputs to read; those known already keep their counts.
fn watch(inputs: &[Input], mut known: Vec<Watched>, stack: &Arc<Stack>) -> Vec<Watched> {
    let watched = |input: &Input| {
        let same = |old: &Watched| Arc::ptr_eq(&old.input.socket, &input.socket);
        match known.iter().position(same) {
            Some(at) => Watched {
                input: input.clone(),
                ..known.swap_remove(at)
            },
            None => Watched {
                input: input.clone(),
                losses: Losses::watch(&input.socket, stack.clone()),
            },
        }
    };
    inputs.iter().map(watched).collect()
}

/// A lone datagram comes with its own size as its segment: only a longer payload is several.
fn train<'a>(received: &RecvInfo, payload: &'a [u8]) -> Train<'a> {
    Train {
        payload,
        segment: received
            .segment
            .filter(|size| *size > 0 && usize::from(*size) < payload.len()),
        ttl: received.ttl.unwrap_or(0),
        tos: received.tos.unwrap_or(0),
    }
}
