//! What a fast path's program hands to userspace past the network stack, read from its ring buffer.

use std::cell::RefCell;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use bpf::Plain as _;
use datapath::Error;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use sys::mmsg::RecvInfo;

use super::skel::types;
use crate::plan::StreamId;

/// Datagrams taken from the ring before others have their turn.
const BATCH: usize = 256;
/// `enum punt_kind` of bpf/punt.h.
const PUNT_COPY: u8 = 1;

/// A datagram that a program handed over.
#[derive(Clone, Debug)]
pub struct Punt {
    pub stream: StreamId,
    pub kind: PuntKind,
    /// As if a socket had received it.
    pub info: RecvInfo,
    pub payload: Box<[u8]>,
}

/// Why a program handed a datagram over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PuntKind {
    /// The program relays it once userspace has caught up: userspace judges it and sends it to every subscriber.
    Diverted,
    /// The program relays it: userspace sends it to the subscribers that only it can send to.
    Copy,
}

/// The ring of one loaded program. It has one reader, and stays on the thread that reads.
pub struct PuntRing<'map> {
    map: &'map MapHandle,
    ring: RingBuffer<'map>,
    punts: Rc<RefCell<Vec<Punt>>>,
}

impl<'map> PuntRing<'map> {
    /// No fewer batches than a full ring holds: 8 MiB of the smallest records.
    pub(crate) const BATCHES: usize = (8 << 20) / 512 / BATCH + 1;

    /// Reads the ring of [`FastPath::punts`](crate::handover::FastPath::punts).
    ///
    /// # Errors
    /// The map is of another type, or cannot be mapped into memory.
    pub fn new(map: &'map MapHandle) -> Result<Self, Error> {
        let failed = |error| Error::failed("reading what the program hands over", error);
        let punts = Rc::new(RefCell::new(Vec::with_capacity(BATCH)));
        let batch = Rc::clone(&punts);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |record| {
                batch.borrow_mut().extend(read(record));
                0
            })
            .map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(Self { map, ring, punts })
    }

    /// Takes the next datagrams, oldest first; none where the ring is empty.
    pub fn take(&mut self) -> Vec<Punt> {
        // Only a callback's own result would be an error, and this one has none.
        let _taken = self.ring.consume_raw_n(BATCH);
        self.punts.take()
    }
}

/// Readable while the ring holds a datagram.
impl AsFd for PuntRing<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl fmt::Debug for PuntRing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PuntRing").finish_non_exhaustive()
    }
}

fn read(record: &[u8]) -> Option<Punt> {
    let (head, rest) = types::punt::split(record)?;
    let payload = rest.get(..usize::from(head.length))?;
    let (address, _) = <[u8; 16]>::split(head.source.bytes())?;
    let address = Ipv6Addr::from(address).to_canonical();
    let kind = match head.kind {
        PUNT_COPY => PuntKind::Copy,
        _ => PuntKind::Diverted,
    };
    Some(Punt {
        stream: StreamId(head.stream),
        kind,
        info: RecvInfo {
            len: payload.len(),
            source: Some(SocketAddr::new(address, u16::from_be(head.source_port))),
            ifindex: Some(head.ifindex),
            ttl: Some(head.ttl),
            tos: Some(head.tos),
            ..RecvInfo::default()
        },
        payload: payload.into(),
    })
}
