//! Bytes one way: the same loops at whichever end sends and receives.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::Totals;
use super::payload::{READ, WRITE, zeros};
use crate::message::{COOKIE, Cookie, last_of};
use crate::pace::Pace;
use crate::socket::timed_out;

/// A datagram that the last one has overtaken comes within this.
const OVERTAKEN: Duration = Duration::from_millis(30);
/// The last datagram is sent again so often, and for so long, unless it comes back.
const AGAIN: Duration = Duration::from_millis(5);
const PARTING: Duration = Duration::from_millis(100);

/// Until it is stopped.
pub(crate) fn tcp_send(stream: &mut TcpStream, message: u32, totals: &Totals) -> io::Result<()> {
    let bytes = zeros(message);
    // Of a large one over a slow path, what has gone by then.
    stream.set_write_timeout(Some(WRITE))?;
    while !totals.is_stopped() {
        match stream.write(bytes) {
            Ok(written) => totals.count(written),
            // A connection that is dead has timed out otherwise.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
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

/// Until it is stopped: as fast as they go, or at their times. Then the other end is told that none follows, so that it
/// need not wait long for what is lost.
pub(crate) fn udp_send(
    socket: &UdpSocket,
    cookie: &Cookie,
    message: u32,
    pace: Option<Pace>,
    totals: &Totals,
) -> io::Result<()> {
    send_all(socket, message, pace, totals)?;
    part(socket, cookie)
}

fn send_all(
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

/// Shows the last datagram until it comes back. Nothing is wrong where it does not: the other end has stopped, or waits
/// until nothing comes.
fn part(socket: &UdpSocket, cookie: &Cookie) -> io::Result<()> {
    let last = last_of(cookie);
    let mut room = [0; COOKIE];
    let begun = Instant::now();
    socket.set_read_timeout(Some(AGAIN))?;
    while begun.elapsed() < PARTING {
        match socket.send(&last).and_then(|_sent| socket.recv(&mut room)) {
            Ok(COOKIE) if room == last => break,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
            _ => {}
        }
    }
    Ok(())
}

/// Until it is stopped, or the last datagram has come. A cookie that comes once more is answered once more.
pub(crate) fn udp_receive(socket: &UdpSocket, cookie: &Cookie, totals: &Totals) -> io::Result<()> {
    let last = last_of(cookie);
    let mut room = vec![0; 1 << 16];
    let mut parting = false;
    while !totals.is_stopped() {
        match socket.recv(&mut room) {
            Ok(COOKIE) if room.starts_with(cookie) => send(socket, cookie)?,
            Ok(COOKIE) if room.starts_with(&last) => {
                // Who sent it may be gone.
                let _ = socket.send(&last);
                if !parting {
                    totals.part();
                }
                parting = true;
                socket.set_read_timeout(Some(OVERTAKEN))?;
            }
            // It was cut.
            Ok(0) => {}
            Ok(received) => totals.count(received),
            Err(error) if timed_out(&error) && parting => return Ok(()),
            Err(error) if timed_out(&error) || is_loss(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends a datagram that may be lost.
pub(crate) fn send(socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
    match socket.send(datagram) {
        Err(error) if !is_loss(&error) && !timed_out(&error) => Err(error),
        _ => Ok(()),
    }
}

/// What the kernel says of a datagram that does not arrive. Of one that was too large for the path it says so once,
/// and cuts those that follow to pieces that fit.
pub(crate) fn is_loss(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(nix::libc::ENOBUFS | nix::libc::EMSGSIZE | nix::libc::ECONNREFUSED)
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const MESSAGE: usize = 100;

    fn pair() -> (UdpSocket, UdpSocket) {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        (one, other)
    }

    #[test]
    fn a_flow_ends_with_its_last_datagram_and_what_that_has_overtaken() {
        let (sender, receiver) = pair();
        let cookie = [0; COOKIE];
        let last = last_of(&cookie);
        for datagram in [&[0; MESSAGE][..], &last, &[0; MESSAGE]] {
            sender.send(datagram).unwrap();
        }
        let totals = Totals::default();
        let window = totals.mark();
        // Nobody stops it, and nothing else has it look whether to stop.
        udp_receive(&receiver, &cookie, &totals).unwrap();
        // It has waited for what may have been overtaken: that is no part of the window.
        let whole = totals.close(&window, 0).window_ns;
        let ended = totals.close(&window, 1).window_ns;
        let waited = u64::try_from(OVERTAKEN.as_nanos()).unwrap();
        assert!(ended + waited <= whole, "{ended} of {whole}");
        assert_eq!((totals.messages(), totals.bytes()), (2, 2 * MESSAGE as u64));
        let mut room = [0; MESSAGE];
        let back = sender.recv(&mut room).unwrap();
        assert_eq!(room[..back], last);
    }

    #[test]
    fn a_sender_parts_from_nobody() {
        let (sender, receiver) = pair();
        drop(receiver);
        part(&sender, &[0; COOKIE]).unwrap();
        let (sender, _silent) = pair();
        part(&sender, &[0; COOKIE]).unwrap();
    }
}
