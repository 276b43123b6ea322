//! `udp_rr`: a request and a response in a datagram each. Both have the request's sequence number, by which an answer
//! belongs to its request.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use super::method::{Method, ServerPart};
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::datagram::{self, is_loss, send};
use crate::flow::requests::{self, Exchange};
use crate::flow::sequence::{MIN_NUMBERED, latest_number, write_header};
use crate::flow::{ANSWER_TIMEOUT, ClientFlow, Clock, Counter, DatagramFlow, payload};
use crate::message::Cookie;
use crate::pace::Bucket;
use crate::socket::timed_out;

pub(super) static FACTS: Facts = Facts {
    quantity: Quantity::Latency,
    transport: Transport::Datagrams,
    sizes: Sizes::Transaction,
    rate: Rate::Optional,
    single_flow: false,
    busy_poll: true,
};

pub(super) static METHOD: Method = Method::Flows {
    client: request,
    server: ServerPart::Datagrams(respond),
};

fn request(flow: &ClientFlow<'_>, clock: &mut Clock<'_>) -> io::Result<()> {
    let socket = flow.meet()?;
    clock.start(flow.spec, flow.number);
    let mut requests = Requests {
        socket: &socket,
        request: payload::pattern(flow.spec.request).to_vec(),
        room: vec![0; datagram::MAX_DATAGRAM_BYTES],
        cookie: flow.cookie,
        counter: flow.counter,
        epoch: Instant::now(),
        number_bytes: flow.spec.number_bytes(),
        newest: 0,
    };
    if flow.spec.rate.is_some() {
        socket.set_nonblocking(true)?;
        return requests::run_open(&mut requests, clock, flow.counter);
    }
    requests::run_closed(&mut requests, clock, flow.counter)
}

/// The requests of one flow, and the answers to them.
struct Requests<'a> {
    socket: &'a UdpSocket,
    request: Vec<u8>,
    room: Vec<u8>,
    cookie: Cookie,
    counter: Counter<'a>,
    epoch: Instant,
    /// The bytes of its number that an answer has. With fewer than [`MIN_NUMBERED`] several requests may share them.
    number_bytes: usize,
    /// The number of the last request.
    newest: u64,
}

impl Requests<'_> {
    /// The next answer, if one arrives before a read times out.
    fn answer(&mut self) -> io::Result<Option<(u64, usize)>> {
        let received = match self.socket.recv(&mut self.room) {
            Ok(received) => received,
            Err(error) if timed_out(&error) || is_loss(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let datagram = self.room.get(..received).unwrap_or_default();
        // The socket was shut down, or the server answers a cookie once more.
        if datagram.is_empty() || datagram == self.cookie {
            return Ok(None);
        }
        let number = match self.has_short_numbers() {
            false => self.counter.record_datagram(datagram).0,
            true => {
                let number = datagram.get(..self.number_bytes).unwrap_or(datagram);
                self.counter.record_datagram(number);
                latest_number(datagram, self.number_bytes, self.newest)
            }
        };
        Ok(Some((number, received)))
    }

    fn has_short_numbers(&self) -> bool {
        self.number_bytes < MIN_NUMBERED
    }
}

impl Exchange for Requests<'_> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn send(&mut self, number: u64) -> io::Result<bool> {
        self.newest = number;
        write_header(&mut self.request, number, self.epoch);
        send(self.socket, &self.request, self.counter)
    }

    fn receive(&mut self) -> io::Result<Option<(u64, usize)>> {
        self.answer()
    }

    fn is_lossy(&self) -> bool {
        true
    }

    /// With a short number a late answer may look like that of a later request: there is one at a time.
    fn min_answer_timeout(&self) -> Duration {
        match self.has_short_numbers() {
            true => ANSWER_TIMEOUT,
            false => requests::MIN_ANSWER_TIMEOUT,
        }
    }
}

/// Answers each datagram until the test stops, but for copies: each request has one answer, so that the loss of either
/// direction is known. An answer beyond the server's limit is not sent: delayed, it would look like a slow path.
fn respond(flow: &DatagramFlow<'_>) -> io::Result<()> {
    let (socket, spec, counter) = (flow.socket, flow.spec, flow.counter);
    let mut room = vec![0; datagram::MAX_DATAGRAM_BYTES];
    let mut response = payload::pattern(spec.response).to_vec();
    let bytes_per_s = flow
        .max_bits_per_s
        .map(|bits| bits / 8.0 / f64::from(spec.flows));
    let mut bucket = bytes_per_s.map(|rate| Bucket::new(rate, spec.response, Instant::now()));
    let epoch = Instant::now();
    while !counter.is_stopped() {
        let received = match socket.recv(&mut room) {
            Ok(received) => received,
            Err(error) if timed_out(&error) || is_loss(&error) => continue,
            Err(error) => return Err(error),
        };
        let request = room.get(..received).unwrap_or_default();
        // The socket was shut down.
        if request.is_empty() {
            continue;
        }
        // The client did not receive the first answer to its cookie.
        if request == flow.cookie {
            datagram::repeat(socket, request)?;
            continue;
        }
        let (number, unique) = counter.count_datagram(request);
        let within = |bucket: &mut Bucket| bucket.take(spec.response as usize, Instant::now());
        if unique && bucket.as_mut().is_none_or(within) {
            write_header(&mut response, number, epoch);
            send(socket, &response, counter)?;
        }
    }
    Ok(())
}
