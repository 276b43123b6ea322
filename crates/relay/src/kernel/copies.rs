//! Brings copies that an XDP program wrote to its ring buffer to the socket they are for, with the
//! addresses they had: a raw socket sends them to this machine itself.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use datapath::Error;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto,
    socket,
};

/// How long the thread waits before it looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(50);
/// `struct copy`: stream, length, family.
const HEAD: usize = 8;
const AF_INET: u16 = 2;

/// The thread that empties the ring. Dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Copies {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Copies {
    /// Starts to deliver from `ring`, in the calling thread's network namespace.
    pub(crate) fn deliver(ring: MapHandle) -> Result<Self, Error> {
        let failed = |error| Error::failed("opening raw sockets for copies", error);
        let sockets = Sockets {
            v4: raw(AddressFamily::Inet).map_err(failed)?,
            v6: raw(AddressFamily::Inet6).map_err(failed)?,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("relay-copies".into())
            .spawn(move || run(&ring, &sockets, &asked))
            .map_err(|error| Error::failed("starting the thread for copies", error))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It returns an error to nobody; a panic of its has been printed.
            let _ = thread.join();
        }
    }
}

struct Sockets {
    v4: OwnedFd,
    v6: OwnedFd,
}

impl Sockets {
    fn deliver(&self, record: &[u8]) -> Option<()> {
        let half = |at: usize| Some(u16::from_ne_bytes(record.get(at..at + 2)?.try_into().ok()?));
        let packet = record.get(HEAD..HEAD + usize::from(half(4)?))?;
        let flags = MsgFlags::MSG_DONTWAIT;
        // A full socket buffer loses the copy like any datagram: the receiver's counter tells.
        let _ = if half(6)? == AF_INET {
            let to: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::from(to), 0));
            sendto(self.v4.as_raw_fd(), packet, &to, flags)
        } else {
            let to: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            let to = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::from(to), 0, 0, 0));
            sendto(self.v6.as_raw_fd(), packet, &to, flags)
        };
        Some(())
    }
}

fn run(ring: &MapHandle, sockets: &Sockets, stop: &AtomicBool) {
    let ring = match reader(ring, sockets) {
        Ok(ring) => ring,
        Err(error) => return tracing::error!("reading copies: {error}"),
    };
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = ring.poll(WAIT)
            && error.kind() != libbpf_rs::ErrorKind::Interrupted
        {
            return tracing::error!("reading copies: {error}");
        }
    }
}

fn reader<'a>(ring: &'a MapHandle, sockets: &'a Sockets) -> libbpf_rs::Result<RingBuffer<'a>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(ring, |record| {
        sockets.deliver(record);
        0
    })?;
    builder.build()
}

fn raw(family: AddressFamily) -> io::Result<OwnedFd> {
    // IPPROTO_RAW: packets are written with their headers.
    let flags = SockFlag::SOCK_CLOEXEC;
    Ok(socket(family, SockType::Raw, flags, SockProtocol::Raw)?)
}
