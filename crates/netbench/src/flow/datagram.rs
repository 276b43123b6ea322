//! Datagrams, each of which may be lost.

use std::io;
use std::net::UdpSocket;

use crate::socket::timed_out;

/// The buffer size that holds any datagram.
pub(crate) const MAX_DATAGRAM_BYTES: usize = 1 << 16;

/// Sends a datagram that may be lost.
pub(crate) fn send(socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
    match socket.send(datagram) {
        Err(error) if !is_loss(&error) && !timed_out(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the kernel reports a datagram that does not arrive. It reports one that was too large for the path once, and
/// sends later ones in fragments that fit.
pub(crate) fn is_loss(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(nix::libc::ENOBUFS | nix::libc::EMSGSIZE | nix::libc::ECONNREFUSED)
    )
}
