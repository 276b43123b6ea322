//! Datagrams, each of which may be lost.

use std::io;
use std::net::UdpSocket;

use nix::libc;

use super::Counter;
use crate::socket::timed_out;

/// The buffer size that holds any datagram.
pub(crate) const MAX_DATAGRAM_BYTES: usize = 1 << 16;

/// Sends a datagram that may be lost. One that this machine refuses is counted. False if the socket has no room for it
/// now.
pub(crate) fn send(socket: &UdpSocket, datagram: &[u8], counter: Counter<'_>) -> io::Result<bool> {
    match socket.send(datagram) {
        Ok(_) => Ok(true),
        Err(error) if timed_out(&error) => Ok(false),
        Err(error) if is_loss(&error) => {
            counter.count_send_error();
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Sends a cookie once more. The other end repeats its own if this one is lost.
pub(crate) fn repeat(socket: &UdpSocket, cookie: &[u8]) -> io::Result<()> {
    match socket.send(cookie) {
        Err(error) if !is_loss(&error) && !timed_out(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the kernel reports a datagram that does not arrive: a full queue, a size that does not fit the path, a port
/// that no socket has, or a firewall of this machine.
pub(crate) fn is_loss(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOBUFS | libc::EMSGSIZE | libc::ECONNREFUSED | libc::EPERM)
    )
}
