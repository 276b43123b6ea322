//! Bytes one way: the same loops at whichever end sends and receives.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};

use super::Totals;
use crate::message::{COOKIE, Cookie};
use crate::pace::Pace;
use crate::socket::timed_out;

/// What a read takes at most, in bytes: more is no faster.
const READ: usize = 256 << 10;

/// Until it is stopped.
pub(crate) fn tcp_send(stream: &mut TcpStream, message: u32, totals: &Totals) -> io::Result<()> {
    let bytes = vec![0; message as usize];
    while !totals.is_stopped() {
        let written = stream.write(&bytes)?;
        totals.count(written);
    }
    Ok(())
}

/// Until the other end has closed.
pub(crate) fn tcp_receive(stream: &mut TcpStream, totals: &Totals) -> io::Result<()> {
    let mut room = vec![0; READ];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return Ok(()),
            Ok(read) => totals.count(read),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Until it is stopped: as fast as they go, or at their times.
pub(crate) fn udp_send(
    socket: &UdpSocket,
    message: u32,
    mut pace: Option<Pace>,
    totals: &Totals,
) -> io::Result<()> {
    let bytes = vec![0; message as usize];
    while !totals.is_stopped() {
        if let Some(pace) = &mut pace
            && pace.wait(|| totals.is_stopped()).is_none()
        {
            return Ok(());
        }
        match socket.send(&bytes) {
            Ok(sent) => totals.count(sent),
            // A queue on the way is full, or nobody listens any more: both are loss.
            Err(error) if is_loss(&error) => totals.count(bytes.len()),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Until it is stopped. A cookie that comes once more is answered once more.
pub(crate) fn udp_receive(socket: &UdpSocket, cookie: &Cookie, totals: &Totals) -> io::Result<()> {
    let mut room = vec![0; 1 << 16];
    while !totals.is_stopped() {
        match socket.recv(&mut room) {
            Ok(COOKIE) if room.starts_with(cookie) => {
                socket.send(cookie)?;
            }
            Ok(received) => totals.count(received),
            Err(error) if timed_out(&error) || is_loss(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What the kernel says of a datagram that does not arrive.
pub(crate) fn is_loss(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ENOBUFS)
        || error.kind() == io::ErrorKind::ConnectionRefused
}
