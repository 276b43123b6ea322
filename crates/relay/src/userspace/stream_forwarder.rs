//! One stream of a worker: admits its datagrams, and sends them to its subscribers.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;

use sys::mmsg::RecvInfo;

use super::fan_out::{FanOut, SendBuffers, Train};
use super::gso_train;
use super::losses::{Losses, Stack, StackDrops};
use super::policing::Policing;
use super::synthetic_work::{Parity, SyntheticWork};
use super::tally::Tally;
use crate::counters::{DropReason, StreamCounters, SubscriberCounters, Traffic};
use crate::handover::Handover;
use crate::plan::{self, StreamId};

/// The part of a stream that a worker relays.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) stream: plan::Stream,
    /// Whether the ingest socket is read. Otherwise it keeps what arrives.
    pub(crate) reads_ingest: bool,
    /// The hand-over to a fast path in progress. It is told how many diverted datagrams are done.
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

/// The origin of a stream's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Ingest,
    /// A fast path diverts them during a hand-over.
    Diverted,
    /// A fast path relays them, and hands over copies for subscribers that only userspace can send to.
    Copies,
}

#[derive(Debug)]
pub(super) struct StreamForwarder {
    id: StreamId,
    socket: Arc<UdpSocket>,
    reads_ingest: bool,
    handover: Option<Arc<Handover>>,
    losses: Losses,
    interfaces: Vec<u32>,
    min_ttl: u8,
    policing: Policing,
    synthetic_work: SyntheticWork,
    fan_out: FanOut,
    received: Traffic,
    /// Datagrams that were admitted, and those that were refused.
    tally: Tally,
    /// Copies for subscribers of userspace that could not be sent.
    pub(super) copies_lost: u64,
    /// Set when the stream leaves this worker, which then removes it between two batches.
    pub(super) leaving: bool,
}

/// The send buffers of a worker.
#[derive(Debug)]
pub(super) struct SendContext {
    pub(super) send_buffers: SendBuffers,
    /// Memory in which trains are joined; none if datagrams are sent one by one.
    pub(super) staging: Option<Vec<u8>>,
}

impl StreamForwarder {
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
            synthetic_work: SyntheticWork::new(&stream.work),
            fan_out: FanOut::new(stream, |_| Tally::default()),
            received: Traffic::default(),
            tally: Tally::default(),
            copies_lost: 0,
            leaving: false,
        }
    }

    /// Changes the work. Counts of subscribers that stay are kept.
    pub(super) fn update(&mut self, work: &Work, now_ns: u64) {
        let stream = &work.stream;
        self.reads_ingest = work.reads_ingest;
        self.handover.clone_from(&work.handover);
        self.interfaces.clone_from(&stream.interfaces);
        self.min_ttl = stream.min_ttl;
        self.policing.update(&stream.source, stream.limits, now_ns);
        self.synthetic_work.update(&stream.work);
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

    /// The ingest socket, if it is read.
    pub(super) fn ingest(&self) -> Option<&Arc<UdpSocket>> {
        self.reads_ingest.then_some(&self.socket)
    }

    /// The hand-over in progress.
    pub(super) fn handover(&self) -> Option<&Arc<Handover>> {
        self.handover.as_ref()
    }

    /// Number of datagrams to relay before others may lock the worker's state: about a millisecond of
    /// sending.
    pub(super) fn stride(&self) -> usize {
        let sending = (512 / self.fan_out.len().max(1)).max(1);
        sending.min(self.synthetic_work.stride())
    }

    /// Relays datagrams, in order.
    pub(super) fn relay<'a>(
        &mut self,
        origin: Origin,
        datagrams: impl Iterator<Item = (&'a RecvInfo, &'a [u8])>,
        context: &mut SendContext,
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
            self.synthetic_work.process(&trains)
        };
        self.send(&trains, copies, context);
        if !parities.is_empty() {
            let trains: Vec<_> = parities.iter().map(Parity::train).collect();
            self.send(&trains, copies, context);
        }
        if origin == Origin::Diverted
            && let Some(handover) = &self.handover
        {
            handover.add_done(seen);
        }
    }

    /// Counts diverted datagrams that were lost to a full backlog, and reports them as done, so that the fast
    /// path does not wait for them.
    pub(super) fn lose_diverted(&mut self, lost: Traffic) {
        self.received.add(lost);
        self.tally.dropped(DropReason::QueueFull, lost.packets);
        if let Some(handover) = &self.handover {
            handover.add_done(lost.packets);
        }
    }

    /// The part of a train that is admitted. The rest is counted by reason.
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

    fn send(&mut self, trains: &[Train<'_>], copies: bool, context: &mut SendContext) {
        let SendContext {
            send_buffers,
            staging,
        } = context;
        match staging {
            Some(staging) => {
                let joined = gso_train::join(trains, self.fan_out.smallest_limit(), staging);
                self.fan_out.send(&joined, copies, send_buffers);
            }
            None if trains.iter().any(|train| train.segment.is_some()) => {
                let single: Vec<_> = trains.iter().copied().flat_map(Train::cut).collect();
                self.fan_out.send(&single, copies, send_buffers);
            }
            None => self.fan_out.send(trains, copies, send_buffers),
        }
    }

    /// The ingest socket's own count of drops.
    pub(super) fn socket_drops(&self) -> Option<u32> {
        sys::socket::drops(&self.socket).ok()
    }

    /// Counts the stack's drops since the last call: see [`Losses::take`].
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

    /// The counts so far.
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

/// The kernel reports a single datagram's own size as its segment size: only a longer payload has several
/// segments.
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
