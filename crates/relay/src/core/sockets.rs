//! Opening the sockets of a stream.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use control::{Error, Kind};
use sys::mmsg;
use sys::multicast::{self, Membership};
use sys::socket::{self, Family};

/// Bytes of queue asked for: 40 ms of 200 kpps. The kernel doubles it for its own overhead.
const QUEUE: usize = 8 << 20;

/// The socket of a group, which is still to be joined. Other programs may receive the group as well.
pub(super) fn group_ingest(group: SocketAddr) -> Result<Arc<UdpSocket>, Error> {
    let socket = open(group, true)
        .and_then(|socket| {
            multicast::only_own_groups(&socket, group.ip().into())?;
            Ok(socket)
        })
        .map_err(|error| refused(group, &error))?;
    Ok(socket.into())
}

/// Has a group's datagrams come to the socket.
pub(super) fn join(socket: &UdpSocket, membership: &Membership) -> Result<(), Error> {
    let refused = |error| Error::failed(format!("cannot join {}: {error}", membership.group));
    multicast::join(socket, membership).map_err(refused)
}

/// A socket that receives at an address and sends from it.
pub(super) fn sender(address: SocketAddr) -> Result<Arc<UdpSocket>, Error> {
    let socket = open(address, false).map_err(|error| refused(address, &error))?;
    Ok(socket.into())
}

/// Drops what a socket has received up to now.
pub(super) fn discard(socket: &UdpSocket) {
    let mut byte = [0];
    // No queue is longer than its bytes.
    for _ in 0..QUEUE {
        if mmsg::receive_one(socket, &mut byte, mmsg::DONT_WAIT).is_err() {
            return;
        }
    }
}

fn open(address: SocketAddr, shared: bool) -> io::Result<UdpSocket> {
    let family = Family::from(address.ip());
    let socket = socket::unbound(family)?;
    if family == Family::V6 {
        socket::v6_only(&socket)?;
        socket::no_flow_label(&socket)?;
    }
    socket::packet_info(&socket, family)?;
    socket::receive_ttl(&socket, family)?;
    socket::receive_tos(&socket, family)?;
    socket::never_fragment(&socket, family)?;
    multicast::loop_back(&socket, family, false)?;
    socket::receive_buffer(&socket, QUEUE)?;
    socket::send_buffer(&socket, QUEUE)?;
    socket.set_broadcast(true)?;
    if shared {
        socket::reuse_address(&socket)?;
    }
    socket::bind(&socket, address)?;
    Ok(socket)
}

fn refused(address: SocketAddr, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => Error::new(
            Kind::Conflict,
            format!("{address} is in use by another program; stop it or choose another port"),
        ),
        io::ErrorKind::AddrNotAvailable => {
            Error::bad_request(format!("{address} is not an address of this machine"))
        }
        io::ErrorKind::PermissionDenied => Error::new(
            Kind::Missing,
            format!("{address}: not permitted; run with sudo, or choose a port from 1024 on"),
        ),
        _ => Error::failed(format!("{address}: {error}")),
    }
}
