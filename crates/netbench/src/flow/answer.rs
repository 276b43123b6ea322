//! The server's part of transactions.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::Instant;

use super::Totals;
use super::stream::{is_loss, send};
use crate::message::{COOKIE, Cookie};
use crate::pace::Bucket;
use crate::socket::timed_out;
use crate::spec::Spec;

/// Answers each request, until the other end has closed.
pub(crate) fn tcp(stream: &mut TcpStream, spec: &Spec, totals: &Totals) -> io::Result<()> {
    let mut request = vec![0; spec.request as usize];
    let response = vec![0; spec.response as usize];
    loop {
        match stream.read_exact(&mut request) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        stream.write_all(&response)?;
        totals.count(request.len());
    }
}

/// One request; who reads the answer sees this end close first.
pub(crate) fn once(
    stream: &mut (impl io::Read + io::Write),
    spec: &Spec,
    totals: &Totals,
) -> io::Result<()> {
    let mut request = vec![0; spec.request as usize];
    stream.read_exact(&mut request)?;
    stream.write_all(&vec![0; spec.response as usize])?;
    totals.count(request.len());
    Ok(())
}

/// Answers each datagram, until it is stopped. The first byte says which request it is an answer to. What is more than
/// may be sent is not answered, and lost to who has asked: put off, it would look like a slow path.
pub(crate) fn udp(
    socket: &UdpSocket,
    spec: &Spec,
    cookie: &Cookie,
    mut bucket: Option<Bucket>,
    totals: &Totals,
) -> io::Result<()> {
    let mut room = vec![0; 1 << 16];
    let mut response = vec![0; spec.response as usize];
    while !totals.is_stopped() {
        let received = match socket.recv(&mut room) {
            // It was cut.
            Ok(0) => continue,
            Ok(received) => received,
            Err(error) if timed_out(&error) || is_loss(&error) => continue,
            Err(error) => return Err(error),
        };
        let again = received == COOKIE && room.starts_with(cookie);
        if again {
            send(socket, cookie)?;
            continue;
        }
        if let (Some(to), Some(from)) = (response.first_mut(), room.first()) {
            *to = *from;
        }
        if let Some(bucket) = &mut bucket
            && !bucket.take(response.len(), Instant::now())
        {
            continue;
        }
        send(socket, &response)?;
        totals.count(received);
    }
    Ok(())
}
