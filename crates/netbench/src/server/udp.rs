//! A flow of datagrams at the server. Nothing is sent before the client has shown the test's cookie from
//! the address that its control connection has: a made-up source gets nothing.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::sockets::Test;
use crate::flow::{answer, stream};
use crate::message::COOKIE;
use crate::pace::{Bucket, Pace};
use crate::socket::timed_out;
use crate::spec::{self, Direction, Spec};

pub(super) fn serve(test: &Test<'_>, flow: u16, socket: &UdpSocket) -> io::Result<()> {
    test.totals.adopt(&socket.into())?;
    if !meet(test, socket)? {
        return Ok(());
    }
    let (spec, totals) = (test.spec, test.totals);
    match (spec.test, spec.direction) {
        (spec::Test::UdpRr, _) => {
            let each = test.shared.limits.bits_per_s;
            let each = each.map(|bits| bits / 8.0 / f64::from(spec.flows));
            let bucket = each.map(|rate| Bucket::new(rate, spec.response, Instant::now()));
            answer::udp(socket, spec, &test.cookie, bucket, totals)
        }
        (_, Direction::Up) => stream::udp_receive(socket, &test.cookie, totals),
        (_, Direction::Down) => {
            let pace = rate(test).map(|rate| Pace::new(rate, flow, spec.flows));
            stream::udp_send(socket, &test.cookie, spec.message, pace, totals)
        }
    }
}

/// Waits for the client, and answers it. False if the test ended first.
fn meet(test: &Test<'_>, socket: &UdpSocket) -> io::Result<bool> {
    let mut room = [0; COOKIE + 1];
    while !test.totals.is_stopped() {
        match socket.recv_from(&mut room) {
            Ok((COOKIE, from)) if from.ip() == test.peer && room.starts_with(&test.cookie) => {
                socket.connect(from)?;
                stream::send(socket, &test.cookie)?;
                return Ok(true);
            }
            Ok(_) => {
                test.shared.strangers.fetch_add(1, Relaxed);
            }
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Datagrams a second: what is asked for, within what the server sends at most.
fn rate(test: &Test<'_>) -> Option<f64> {
    let Spec { rate, message, .. } = test.spec;
    let most = test.shared.limits.bits_per_s;
    let most = most.map(|bits| bits / (f64::from(*message) * 8.0));
    match (rate, most) {
        (Some(rate), Some(most)) => Some(rate.min(most)),
        (rate, most) => rate.or(most),
    }
}
