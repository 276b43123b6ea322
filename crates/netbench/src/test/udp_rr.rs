//! `udp_rr`: a request and a response in a datagram each.

use std::io;
use std::net::UdpSocket;
use std::time::Instant;

use super::method::{Method, ServerPart};
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::datagram::{self, is_loss, send};
use crate::flow::{ANSWER_TIMEOUT, ClientFlow, Clock, DatagramFlow};
use crate::message::COOKIE;
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
    let mut request = vec![0; flow.spec.request as usize];
    let mut room = vec![0; datagram::MAX_DATAGRAM_BYTES];
    let mut number = 0_u8;
    while let Some(transaction) = clock.begin() {
        // Never 0: a cookie begins with it, and the server may see the cookie once more.
        number = number.checked_add(1).unwrap_or(1);
        if let Some(first) = request.first_mut() {
            *first = number;
        }
        send(&socket, &request)?;
        match receive(&socket, number, &mut room)? {
            Some(received) => clock.complete(transaction, received),
            None => clock.lose(transaction),
        }
    }
    Ok(())
}

/// Waits for the answer to this request, and returns its size. Answers to earlier requests come too late.
fn receive(socket: &UdpSocket, number: u8, room: &mut [u8]) -> io::Result<Option<usize>> {
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_TIMEOUT {
        match socket.recv(room) {
            // The socket was shut down.
            Ok(0) => break,
            Ok(received) if room.first() == Some(&number) => return Ok(Some(received)),
            Ok(_) => {}
            Err(error) if timed_out(&error) || is_loss(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Answers each datagram until the test stops. The first byte tells the client which request the answer belongs to. An
/// answer beyond the server's limit is not sent: delayed, it would look like a slow path.
fn respond(flow: &DatagramFlow<'_>) -> io::Result<()> {
    let (socket, spec) = (flow.socket, flow.spec);
    let mut room = vec![0; datagram::MAX_DATAGRAM_BYTES];
    let mut response = vec![0; spec.response as usize];
    let bytes_per_s = flow
        .max_bits_per_s
        .map(|bits| bits / 8.0 / f64::from(spec.flows));
    let mut bucket = bytes_per_s.map(|rate| Bucket::new(rate, spec.response, Instant::now()));
    while !flow.totals.is_stopped() {
        let received = match socket.recv(&mut room) {
            // The socket was shut down.
            Ok(0) => continue,
            Ok(received) => received,
            Err(error) if timed_out(&error) || is_loss(&error) => continue,
            Err(error) => return Err(error),
        };
        // The client did not receive the first answer to its cookie.
        if received == COOKIE && room.starts_with(flow.cookie) {
            send(socket, flow.cookie)?;
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
        flow.totals.count(received);
    }
    Ok(())
}
