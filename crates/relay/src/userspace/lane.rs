//! One stream in a worker: what comes in, whether it may, and on to the subscribers.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;

use sys::mmsg::RecvInfo;

use super::fan_out::{FanOut, Outlet, Train};
use super::labour::{Labour, Parity};
use super::losses::{Losses, Stack, StackDrops};
use super::policing::Policing;
use super::runs;
use super::tally::Tally;
use crate::counters::{DropReason, StreamCounters, SubscriberCounters, Traffic};
use crate::handover::Handover;
use crate::plan::{self, StreamId};

/// What a worker relays of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) stream: plan::Stream,
    /// The ingest socket is read. Otherwise it keeps what arrives.
    pub(crate) reads_ingest: bool,
    /// The hand-over to a fast path that is under way: it is told how much of what the fast path diverts is done.
    pub(crate) handover: Option<Arc<Handover>>,
}

impl Work {
    /// The stream from its ingest socket.
    pub(crate) fn ingest(stream: plan::Stream) -> Self {
        Self {
            stream,
            reads_ingest: true,
            handover: None,
        }
    }
}

/// Where datagrams of a stream come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Ingest,
    /// A fast path diverts them during a hand-over.
    Diverted,
    /// A fast path relays them, and hands over copies for subscribers that only userspace can send to.
    Copies,
}

#[derive(Debug)]
pub(super) struct Lane {
    id: StreamId,
    socket: Arc<UdpSocket>,
    reads_ingest: bool,
    handover: Option<Arc<Handover>>,
    losses: Losses,
    interfaces: Vec<u32>,
    min_ttl: u8,
    policing: Policing,
    labour: Labour,
    fan_out: FanOut,
    received: Traffic,
    /// Datagrams offered to the subscribers, and those refused.
    tally: Tally,
    /// Copies that found no lane, or none that sends them.
    pub(super) copies_lost: u64,
    /// Set when the stream leaves this worker, which lets go of it between two batches.
    pub(super) leaving: bool,
}

/// The buffers a worker sends with.
#[derive(Debug)]
pub(super) struct Workshop {
    pub(super) outlet: Outlet,
    /// Where trains are put together; absent where datagrams go one by one.
    pub(super) staging: Option<Vec<u8>>,
}

impl Lane {
    pub(super) fn new(work: &Work, stack: &Stack, now_ns: u64) -> Self {
        let stream = &work.stream;
        Self {
            id: stream.id,
            socket: stream.socket.clone(),
            reads_ingest: work.reads_ingest,
            handover: work.handover.clone(),
            losses: Losses::watch(&stream.socket, stack),
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
    pub(super) fn update(&mut self, work: &Work, now_ns: u64) {
        let stream = &work.stream;
        self.reads_ingest = work.reads_ingest;
        self.handover.clone_from(&work.handover);
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

    /// The ingest socket, where it is read.
    pub(super) fn ingest(&self) -> Option<&Arc<UdpSocket>> {
        self.reads_ingest.then_some(&self.socket)
    }

    /// The hand-over under way.
    pub(super) fn handover(&self) -> Option<&Arc<Handover>> {
        self.handover.as_ref()
    }

    /// How many received datagrams to relay before others may look at the lane: about a
    /// millisecond of sending.
    pub(super) fn stride(&self) -> usize {
        let sending = (512 / self.fan_out.len().max(1)).max(1);
        sending.min(self.labour.stride())
    }

    /// Relays datagrams, in order.
    pub(super) fn relay<'a>(
        &mut self,
        origin: Origin,
        datagrams: impl Iterator<Item = (&'a RecvInfo, &'a [u8])>,
        workshop: &mut Workshop,
        now_ns: u64,
    ) {
        let copies = origin == Origin::Copies;
        if copies && !self.fan_out.has_userspace_only() {
            self.copies_lost += datagrams.count() as u64;
            return;
        }
        let mut seen = 0;
        let mut trains = Vec::with_capacity(datagrams.size_hint().0);
        for (received, payload) in datagrams {
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
        if origin == Origin::Diverted
            && let Some(handover) = &self.handover
        {
            handover.add_done(seen);
        }
    }

    /// Counts diverted datagrams that found no room to wait; the fast path must not wait for them.
    pub(super) fn lose_diverted(&mut self, lost: Traffic) {
        self.received.add(lost);
        self.tally.dropped(DropReason::QueueFull, lost.packets);
        if let Some(handover) = &self.handover {
            handover.add_done(lost.packets);
        }
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

    fn send(&mut self, trains: &[Train<'_>], copies: bool, workshop: &mut Workshop) {
        let Workshop { outlet, staging } = workshop;
        match staging {
            Some(staging) => {
                let joined = runs::join(trains, self.fan_out.smallest_limit(), staging);
                self.fan_out.send(&joined, copies, outlet);
            }
            None if trains.iter().any(|train| train.segment.is_some()) => {
                let single: Vec<_> = trains.iter().copied().flat_map(Train::cut).collect();
                self.fan_out.send(&single, copies, outlet);
            }
            None => self.fan_out.send(trains, copies, outlet),
        }
    }

    /// The ingest socket's own count of what it lost.
    pub(super) fn socket_drops(&self) -> Option<u32> {
        sys::socket::drops(&self.socket).ok()
    }

    /// Counts what the stack dropped since the last call: as [`Losses::take`].
    pub(super) fn count_losses(
        &mut self,
        drops: Option<u32>,
        stack: (StackDrops, StackDrops),
        alone: bool,
    ) {
        let lost = self.losses.take(drops, stack, alone);
        self.tally
            .dropped(DropReason::BadChecksum, lost.bad_checksum);
        self.tally.dropped(DropReason::QueueFull, lost.queue_full);
        self.received.packets += lost.bad_checksum + lost.queue_full;
    }

    /// Everything counted up to now.
    pub(super) fn counters(&self) -> StreamCounters {
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
