//! `udp_stream`: one end sends datagrams, the other counts them.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::method::{Method, ServerPart};
use super::{ETHERNET_PAYLOAD, Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::datagram::{self, is_loss};
use crate::flow::{ClientFlow, Clock, DatagramFlow, Totals};
use crate::message::{COOKIE, Cookie, last_of};
use crate::pace::Pace;
use crate::socket::timed_out;
use crate::spec::Direction;

/// A datagram that was overtaken by the last one arrives within this.
const REORDERING: Duration = Duration::from_millis(30);
/// The last datagram is repeated at this interval, for this long, until it comes back.
const LAST_INTERVAL: Duration = Duration::from_millis(5);
const LAST_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) static FACTS: Facts = Facts {
    quantity: Quantity::Transfer,
    transport: Transport::Datagrams,
    sizes: Sizes::Message {
        default: ETHERNET_PAYLOAD,
    },
    rate: Rate::Optional,
    single_flow: false,
    busy_poll: true,
};

pub(super) static METHOD: Method = Method::Flows {
    client,
    server: ServerPart::Datagrams(server),
};

pub(super) fn client(flow: &ClientFlow<'_>, _clock: &mut Clock<'_>) -> io::Result<()> {
    let socket = flow.meet()?;
    let spec = flow.spec;
    match spec.direction {
        Direction::Up => {
            let pace = spec
                .rate
                .map(|rate| Pace::new(rate, flow.number, spec.flows));
            send(&socket, &flow.cookie, spec.message, pace, flow.totals)
        }
        Direction::Down => receive(&socket, &flow.cookie, flow.totals),
    }
}

fn server(flow: &DatagramFlow<'_>) -> io::Result<()> {
    match flow.spec.direction {
        Direction::Up => receive(flow.socket, flow.cookie, flow.totals),
        Direction::Down => {
            let pace = server_rate(flow).map(|rate| Pace::new(rate, flow.number, flow.spec.flows));
            send(
                flow.socket,
                flow.cookie,
                flow.spec.message,
                pace,
                flow.totals,
            )
        }
    }
}

/// Datagrams a second of all flows: the rate of the test, within the server's limit.
fn server_rate(flow: &DatagramFlow<'_>) -> Option<f64> {
    let bits = f64::from(flow.spec.message) * 8.0;
    match (flow.spec.rate, flow.max_bits_per_s.map(|max| max / bits)) {
        (Some(rate), Some(max)) => Some(rate.min(max)),
        (rate, max) => rate.or(max),
    }
}

/// Sends until the test stops, at the pace or as fast as it goes. Then it tells the other end that no more follow, so
/// that it need not wait long for datagrams that are lost.
fn send(
    socket: &UdpSocket,
    cookie: &Cookie,
    message: u32,
    pace: Option<Pace>,
    totals: &Totals,
) -> io::Result<()> {
    send_messages(socket, message, pace, totals)?;
    send_last(socket, cookie)
}

fn send_messages(
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
            // A full queue, or a receiver that has gone: both are loss.
            Err(error) if is_loss(&error) => totals.count(bytes.len()),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Repeats the last datagram until it comes back. It need not: the other end may have stopped, or wait until nothing
/// comes.
fn send_last(socket: &UdpSocket, cookie: &Cookie) -> io::Result<()> {
    let last = last_of(cookie);
    let mut room = [0; COOKIE];
    let begun = Instant::now();
    socket.set_read_timeout(Some(LAST_INTERVAL))?;
    while begun.elapsed() < LAST_TIMEOUT {
        match socket.send(&last).and_then(|_sent| socket.recv(&mut room)) {
            Ok(COOKIE) if room == last => break,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
            _ => {}
        }
    }
    Ok(())
}

/// Receives until the test stops or the last datagram has come. Each further cookie is answered.
fn receive(socket: &UdpSocket, cookie: &Cookie, totals: &Totals) -> io::Result<()> {
    let last = last_of(cookie);
    let mut room = vec![0; datagram::MAX_DATAGRAM_BYTES];
    let mut ending = false;
    while !totals.is_stopped() {
        match socket.recv(&mut room) {
            Ok(COOKIE) if room.starts_with(cookie) => datagram::send(socket, cookie)?,
            Ok(COOKIE) if room.starts_with(&last) => {
                // The sender may be gone.
                let _ = socket.send(&last);
                if !ending {
                    totals.count_finished();
                }
                ending = true;
                socket.set_read_timeout(Some(REORDERING))?;
            }
            // The socket was shut down.
            Ok(0) => {}
            Ok(received) => totals.count(received),
            Err(error) if timed_out(&error) && ending => return Ok(()),
            Err(error) if timed_out(&error) || is_loss(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
    fn flow_ends_after_last_and_reordered_datagrams() {
        let (sender, receiver) = pair();
        let cookie = [0; COOKIE];
        let last = last_of(&cookie);
        for datagram in [&[0; MESSAGE][..], &last, &[0; MESSAGE]] {
            sender.send(datagram).unwrap();
        }
        let totals = Totals::default();
        let window = totals.open_window();
        // Nobody stops it, and nothing else has it look whether to stop.
        receive(&receiver, &cookie, &totals).unwrap();
        // It has waited for what may have been overtaken: that is no part of the window.
        let whole = totals.close_window(&window, 0).window_ns;
        let ended = totals.close_window(&window, 1).window_ns;
        let waited = u64::try_from(REORDERING.as_nanos()).unwrap();
        assert!(ended + waited <= whole, "{ended} of {whole}");
        assert_eq!((totals.messages(), totals.bytes()), (2, 2 * MESSAGE as u64));
        let mut room = [0; MESSAGE];
        let back = sender.recv(&mut room).unwrap();
        assert_eq!(room[..back], last);
    }

    #[test]
    fn sender_needs_no_answer_to_last() {
        let (sender, receiver) = pair();
        drop(receiver);
        send_last(&sender, &[0; COOKIE]).unwrap();
        let (sender, _silent) = pair();
        send_last(&sender, &[0; COOKIE]).unwrap();
    }
}
