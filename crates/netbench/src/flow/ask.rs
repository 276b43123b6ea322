//! The client's part of transactions: each is timed from when it was sent, or should have been.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::Totals;
use super::stream::is_loss;
use crate::message::Cookie;
use crate::outcome::Latency;
use crate::pace::Pace;
use crate::socket::{self, timed_out};
use crate::spec::Spec;

/// What has not been answered for so long is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// The moments at which transactions begin, and the times that they took.
pub(crate) struct Clock<'a> {
    pace: Option<Pace>,
    totals: &'a Totals,
    latency: Latency,
}

impl<'a> Clock<'a> {
    pub(crate) fn new(spec: &Spec, flow: u16, totals: &'a Totals) -> Self {
        Self {
            pace: spec.rate.map(|rate| Pace::new(rate, flow, spec.flows)),
            totals,
            latency: Latency::new(),
        }
    }

    /// When the next one begins, or should have; none when all have to stop. It counts if the window was
    /// open then.
    fn next(&mut self) -> Option<(Instant, bool)> {
        let totals = self.totals;
        if totals.is_stopped() {
            return None;
        }
        let begin = match &mut self.pace {
            Some(pace) => pace.wait(|| totals.is_stopped())?,
            None => Instant::now(),
        };
        Some((begin, totals.is_measured()))
    }

    fn done(&mut self, (begin, counts): (Instant, bool), bytes: usize) {
        let took = begin.elapsed();
        self.totals.count(bytes);
        if counts {
            self.latency
                .record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    fn lost(&self, (_, counts): (Instant, bool)) {
        if counts {
            self.totals.lose();
        }
    }
}

/// Over one connection.
pub(crate) fn tcp(
    stream: &mut TcpStream,
    spec: &Spec,
    mut clock: Clock<'_>,
) -> io::Result<Latency> {
    let request = vec![0; spec.request as usize];
    let mut response = vec![0; spec.response as usize];
    while let Some(begun) = clock.next() {
        stream.write_all(&request)?;
        stream.read_exact(&mut response)?;
        clock.done(begun, response.len());
    }
    Ok(clock.latency)
}

/// Over a connection each, from its opening until the answer is there.
pub(crate) fn connect(
    to: SocketAddr,
    cookie: &Cookie,
    spec: &Spec,
    mut clock: Clock<'_>,
) -> io::Result<Latency> {
    let mut request = cookie.to_vec();
    request.resize(request.len() + spec.request as usize, 0);
    let mut response = vec![0; spec.response as usize];
    while let Some(begun) = clock.next() {
        let socket = socket::tcp(to.ip(), spec)?;
        socket.connect_timeout(&to.into(), PATIENCE * 5)?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE * 5))?;
        stream.write_all(&request)?;
        stream.read_exact(&mut response)?;
        clock.done(begun, response.len());
        // The server closes first: its end, which has room for it, is the one that lingers.
        let _end = stream.read(&mut [0]);
    }
    Ok(clock.latency)
}

/// In a datagram each way.
pub(crate) fn udp(socket: &UdpSocket, spec: &Spec, mut clock: Clock<'_>) -> io::Result<Latency> {
    let mut request = vec![0; spec.request as usize];
    let mut room = vec![0; 1 << 16];
    let mut number = 0_u8;
    while let Some(begun) = clock.next() {
        // Never 0, which a cookie begins with: it may come once more.
        number = number.checked_add(1).unwrap_or(1);
        if let Some(first) = request.first_mut() {
            *first = number;
        }
        match socket.send(&request) {
            Err(error) if !is_loss(&error) => return Err(error),
            _ => {}
        }
        match answer(socket, number, &mut room)? {
            Some(received) => clock.done(begun, received),
            None => clock.lost(begun),
        }
    }
    Ok(clock.latency)
}

/// Waits for the answer to this request; those to others come too late.
fn answer(socket: &UdpSocket, number: u8, room: &mut [u8]) -> io::Result<Option<usize>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match socket.recv(room) {
            Ok(received) if room.first() == Some(&number) => return Ok(Some(received)),
            Ok(_) => {}
            Err(error) if timed_out(&error) || is_loss(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
