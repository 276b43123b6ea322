//! Brings copies that an XDP program wrote to its ring buffer to the socket they are for, with the
//! addresses they had: a raw socket sends them to this machine itself.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bpf::Plain as _;
use datapath::Error;
use libbpf_rs::{MapHandle, MapMut, RingBuffer, RingBufferBuilder};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto,
    socket,
};
use packet::checksum;

use super::skel::types;

/// How long the thread waits before it looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(50);
const AF_INET: u16 = 2;

/// The thread that empties the ring. Dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Copies {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Copies {
    /// Starts to deliver from `ring`, in the calling thread's network namespace.
    pub(crate) fn deliver(ring: &MapMut<'_>) -> Result<Self, Error> {
        let ring = MapHandle::try_from(ring)
            .map_err(|error| Error::failed("keeping the ring of copies", error))?;
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
        let (head, rest) = types::copy::split(record)?;
        let packet = rest.get(..usize::from(head.length))?;
        let to: IpAddr = if head.family == AF_INET {
            <[u8; 4]>::try_from(packet.get(16..20)?).ok()?.into()
        } else {
            <[u8; 16]>::try_from(packet.get(24..40)?).ok()?.into()
        };
        match group_copies_at(to) {
            None => self.send(packet, to),
            Some(loopback) => self.send(&redirected(packet, loopback)?, loopback),
        }
        Some(())
    }

    /// A full socket buffer loses the copy like any datagram: the receiver's counter tells.
    fn send(&self, packet: &[u8], to: IpAddr) {
        let flags = MsgFlags::MSG_DONTWAIT;
        let _ = match to {
            IpAddr::V4(to) => {
                let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
                sendto(self.v4.as_raw_fd(), packet, &to, flags)
            }
            IpAddr::V6(to) => {
                let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, 0));
                sendto(self.v6.as_raw_fd(), packet, &to, flags)
            }
        };
    }
}

/// Where copies of what came to this address are delivered, if not there: what is sent to a group
/// leaves the machine.
pub(crate) fn group_copies_at(address: IpAddr) -> Option<IpAddr> {
    address.is_multicast().then(|| match address {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    })
}

/// A packet to another address of its family, its UDP checksum changed with it; the kernel itself
/// fills in that of an IPv4 header.
fn redirected(packet: &[u8], to: IpAddr) -> Option<Vec<u8>> {
    let (to, at, header) = match to {
        IpAddr::V4(to) => (to.octets().to_vec(), 16, 20),
        IpAddr::V6(to) => (to.octets().to_vec(), 24, 40),
    };
    let mut packet = packet.to_vec();
    let address = packet.get_mut(at..at + to.len())?;
    let before = address.to_vec();
    address.copy_from_slice(&to);
    let check = packet.get_mut(header + 6..header + 8)?;
    let old = u16::from_be_bytes([check[0], check[1]]);
    let check_sum = match checksum::replace_bytes(old, &before, &to) {
        // 0 means that the datagram has no checksum.
        0 => u16::MAX,
        check_sum => check_sum,
    };
    check.copy_from_slice(&check_sum.to_be_bytes());
    Some(packet)
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
