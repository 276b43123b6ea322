//! Sends admitted datagrams to every subscriber, and counts the outcome of each copy.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use netdev::NextHop;
use sys::mmsg::{self, Burst, DONT_WAIT, Outgoing, SendBatch};

use super::tally::Tally;
use crate::counters::DropReason;
use crate::plan::{self, Stream, Subscriber};

/// Equal datagrams in one payload: one, or a run of `segment` bytes each of which the last may be
/// shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train<'a> {
    pub(super) payload: &'a [u8],
    /// `None` for a single datagram.
    pub(super) segment: Option<u16>,
    /// TTL or hop limit on arrival.
    pub(super) ttl: u8,
    /// TOS or traffic class on arrival.
    pub(super) tos: u8,
}

impl<'a> Train<'a> {
    pub(super) fn packets(&self) -> u64 {
        match self.segment {
            None => 1,
            Some(size) => self.payload.len().div_ceil(usize::from(size)) as u64,
        }
    }

    /// The first `packets` datagrams of it; `None` when that is none.
    pub(super) fn first(self, packets: u64) -> Option<Self> {
        if packets == 0 {
            return None;
        }
        let Some(size) = self.segment.map(usize::from) else {
            return Some(self);
        };
        let bytes = usize::try_from(packets)
            .unwrap_or(usize::MAX)
            .saturating_mul(size);
        let payload = &self.payload[..bytes.min(self.payload.len())];
        Some(Self {
            payload,
            segment: self.segment.filter(|_| payload.len() > size),
            ..self
        })
    }

    fn largest(&self) -> usize {
        self.segment.map_or(self.payload.len(), usize::from)
    }

    /// The datagrams one by one.
    pub(super) fn cut(self) -> impl Iterator<Item = Self> + use<'a> {
        // An empty datagram is one of no bytes, which `chunks` would skip.
        let whole = self.segment.is_none().then_some(self);
        let parts = self.segment.into_iter().flat_map(move |size| {
            let single = move |payload| Self {
                payload,
                segment: None,
                ..self
            };
            self.payload.chunks(usize::from(size)).map(single)
        });
        whole.into_iter().chain(parts)
    }
}

/// The subscribers of one stream, by the socket that sends to them.
#[derive(Debug)]
pub(super) struct FanOut {
    sockets: Vec<EgressSocket>,
}

#[derive(Debug)]
struct EgressSocket {
    socket: Arc<UdpSocket>,
    targets: Vec<Target>,
}

/// One subscriber as the sender needs it.
#[derive(Debug)]
struct Target {
    slot: u32,
    outgoing: Outgoing,
    /// TTL instead of one less than on arrival.
    ttl: Option<u8>,
    /// Why nothing can be sent now.
    unreachable: Option<DropReason>,
    largest_payload: usize,
    /// A fast path beside this worker cannot send to it.
    userspace_only: bool,
    tally: Tally,
}

impl FanOut {
    /// Groups the stream's subscribers by socket. `known` gives the counts of those that stay.
    pub(super) fn new(stream: &Stream, mut known: impl FnMut(u32) -> Tally) -> Self {
        let mut sockets: Vec<EgressSocket> = Vec::new();
        for subscriber in &stream.subscribers {
            let socket = stream
                .egress
                .get(&subscriber.source)
                .unwrap_or(&stream.socket);
            let target = Target::new(subscriber, known(subscriber.id.0));
            match sockets
                .iter_mut()
                .find(|egress| Arc::ptr_eq(&egress.socket, socket))
            {
                Some(egress) => egress.targets.push(target),
                None => sockets.push(EgressSocket {
                    socket: socket.clone(),
                    targets: vec![target],
                }),
            }
        }
        Self { sockets }
    }

    pub(super) fn len(&self) -> usize {
        self.sockets.iter().map(|egress| egress.targets.len()).sum()
    }

    /// Whether there are subscribers that a fast path cannot send to.
    pub(super) fn has_userspace_only(&self) -> bool {
        let mut targets = self.sockets.iter().flat_map(|egress| &egress.targets);
        targets.any(|target| target.userspace_only)
    }

    /// The largest payload that every subscriber can get.
    pub(super) fn smallest_limit(&self) -> usize {
        let targets = self.sockets.iter().flat_map(|egress| &egress.targets);
        let limits = targets.map(|target| target.largest_payload);
        limits.min().unwrap_or(MAX_V4_PAYLOAD)
    }

    /// Every subscriber's slot and counts.
    pub(super) fn tallies(&self) -> impl Iterator<Item = (u32, &Tally)> {
        let targets = self.sockets.iter().flat_map(|egress| &egress.targets);
        targets.map(|target| (target.slot, &target.tally))
    }

    /// Sends each train to each subscriber. Of copies, a fast path has sent all but those for subscribers that only
    /// userspace can send to.
    pub(super) fn send(
        &mut self,
        trains: &[Train<'_>],
        is_copy: bool,
        send_buffers: &mut SendBuffers,
    ) {
        for egress in &mut self.sockets {
            egress.send(trains, is_copy, send_buffers);
        }
    }
}

/// Send buffers: one datagram by `sendmsg`, or bursts by `sendmmsg`.
#[derive(Debug)]
pub(super) struct SendBuffers {
    batch: SendBatch,
    capacity: usize,
    /// Train and target of each datagram in the burst, in its order.
    pushed: Vec<(usize, usize)>,
}

impl SendBuffers {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            batch: SendBatch::new(capacity),
            capacity,
            pushed: Vec::with_capacity(capacity),
        }
    }
}

impl EgressSocket {
    fn send(&mut self, trains: &[Train<'_>], is_copy: bool, send_buffers: &mut SendBuffers) {
        if send_buffers.capacity == 1 {
            self.send_each(trains, is_copy);
        } else {
            self.send_bursts(trains, is_copy, send_buffers);
        }
    }

    fn send_each(&mut self, trains: &[Train<'_>], is_copy: bool) {
        for train in trains {
            for target in &mut self.targets {
                if (target.userspace_only || !is_copy) && target.accepts(train) {
                    let outgoing = target.outgoing(train);
                    match mmsg::send_one(&self.socket, train.payload, &outgoing, DONT_WAIT) {
                        Ok(_) => target.sent(train),
                        Err(error) => target.refused(&self.socket, train, &error),
                    }
                }
            }
        }
    }

    fn send_bursts(&mut self, trains: &[Train<'_>], is_copy: bool, send_buffers: &mut SendBuffers) {
        let fan = self.targets.len();
        let copies = trains.len() * fan;
        let mut next = 0;
        while next < copies {
            let mut burst = send_buffers.batch.burst();
            send_buffers.pushed.clear();
            while next < copies && send_buffers.pushed.len() < send_buffers.capacity {
                let train = next / fan;
                let target = &mut self.targets[next % fan];
                if (target.userspace_only || !is_copy)
                    && target.accepts(&trains[train])
                    && burst.push(trains[train].payload, &target.outgoing(&trains[train]))
                {
                    send_buffers.pushed.push((train, next % fan));
                }
                next += 1;
            }
            self.flush(&mut burst, trains, &send_buffers.pushed);
        }
    }

    fn flush(
        &mut self,
        burst: &mut Burst<'_, '_>,
        trains: &[Train<'_>],
        pushed: &[(usize, usize)],
    ) {
        let mut done = 0;
        while done < pushed.len() {
            match burst.send(&self.socket, DONT_WAIT) {
                Ok(sent) => {
                    for (train, target) in &pushed[done..done + sent] {
                        self.targets[*target].sent(&trains[*train]);
                    }
                    done += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let (train, target) = pushed[done];
                    self.targets[target].refused(&self.socket, &trains[train], &error);
                    burst.skip();
                    done += 1;
                }
            }
        }
    }
}

impl Target {
    fn new(subscriber: &Subscriber, tally: Tally) -> Self {
        let mut outgoing = Outgoing::to(subscriber.destination);
        outgoing.source = Some(subscriber.source.ip());
        let (mut largest_payload, headers) = match subscriber.destination {
            SocketAddr::V4(_) => (MAX_V4_PAYLOAD, 28),
            SocketAddr::V6(_) => (MAX_V6_PAYLOAD, 48),
        };
        if let NextHop::Ready { ifindex, mtu, .. } = subscriber.next_hop {
            largest_payload = largest_payload.min((mtu as usize).saturating_sub(headers));
            // Groups have no route of their own: the interface is the subscriber's.
            if subscriber.destination.ip().is_multicast() {
                outgoing.ifindex = Some(ifindex);
            }
        }
        Self {
            slot: subscriber.id.0,
            outgoing,
            ttl: subscriber.ttl,
            unreachable: plan::drop_reason(&subscriber.next_hop),
            largest_payload,
            userspace_only: subscriber.userspace_only,
            tally,
        }
    }

    /// Whether the train can be sent to it; counts why not.
    fn accepts(&mut self, train: &Train<'_>) -> bool {
        let too_big = train.largest() > self.largest_payload;
        let reason = match self.unreachable {
            None if too_big => Some(DropReason::TooBig),
            known => known,
        };
        match reason {
            None => true,
            Some(reason) => {
                self.tally.dropped(reason, train.packets());
                false
            }
        }
    }

    fn outgoing(&self, train: &Train<'_>) -> Outgoing {
        let mut outgoing = self.outgoing;
        outgoing.ttl = self.ttl.or_else(|| Some(train.ttl.saturating_sub(1)));
        outgoing.tos = Some(train.tos);
        outgoing.segment = train.segment;
        outgoing
    }

    fn sent(&mut self, train: &Train<'_>) {
        self.tally.passed(train.packets(), train.payload.len());
    }

    /// A device without checksum offload takes no superframes: its train goes datagram by datagram.
    fn refused(&mut self, socket: &UdpSocket, train: &Train<'_>, error: &io::Error) {
        if train.segment.is_none() || error.raw_os_error() != Some(libc::EIO) {
            self.tally.dropped(reason(error), train.packets());
            return;
        }
        for single in train.cut() {
            let outgoing = self.outgoing(&single);
            match mmsg::send_one(socket, single.payload, &outgoing, DONT_WAIT) {
                Ok(_) => self.sent(&single),
                Err(error) => self.tally.dropped(reason(&error), 1),
            }
        }
    }
}

/// 65 535 bytes of IPv4 packet less both headers; of IPv6 payload less UDP's.
const MAX_V4_PAYLOAD: usize = 65_507;
const MAX_V6_PAYLOAD: usize = 65_527;

/// The consequence of a send error for the copy.
fn reason(error: &io::Error) -> DropReason {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => DropReason::TooBig,
        Some(
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EADDRNOTAVAIL
            | libc::ENETDOWN
            | libc::ENODEV
            | libc::ENXIO,
        ) => DropReason::NoRoute,
        _ => DropReason::Transmit,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::userspace) fn train(payload: &[u8], segment: Option<u16>) -> Train<'_> {
        Train {
            payload,
            segment,
            ttl: 61,
            tos: 0xb8,
        }
    }

    #[test]
    fn a_train_is_its_datagrams() {
        let whole = train(&[7; 650], Some(200));
        assert_eq!(whole.packets(), 4);
        let sizes: Vec<_> = whole.cut().map(|single| single.payload.len()).collect();
        assert_eq!(sizes, [200, 200, 200, 50]);
        assert!(whole.cut().all(|single| single.packets() == 1));
    }

    #[test]
    fn an_empty_datagram_is_one() {
        let empty = train(&[], None);
        assert_eq!(empty.packets(), 1);
        assert_eq!(empty.cut().count(), 1);
    }
}
