//! `udp_stream`: one end sends datagrams with sequence numbers, the other counts them.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::method::{Method, ServerPart};
use super::{ETHERNET_PAYLOAD, Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::datagram::{self, is_loss};
use crate::flow::sequence::write_header;
use crate::flow::{ClientFlow, Clock, Counter, DatagramFlow, Lateness, payload};
use crate::message::{COOKIE, Cookie, last_of};
use crate::pace::Pace;
use crate::socket::timed_out;
use crate::spec::{Direction, Spec};

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

pub(super) fn client(flow: &ClientFlow<'_>, clock: &mut Clock<'_>) -> io::Result<()> {
    let socket = flow.meet()?;
    match flow.spec.direction {
        Direction::Up => {
            flow.counter.await_window();
            let mut late = |by| clock.record_lateness(by);
            let mut sender = Sender::new(&socket, flow.spec, flow.counter, flow.pace());
            sender.send(&flow.cookie, &mut late)
        }
        Direction::Down => receive(&socket, &flow.cookie, flow.counter),
    }
}

fn server(flow: &DatagramFlow<'_>) -> io::Result<()> {
    match flow.spec.direction {
        Direction::Up => receive(flow.socket, flow.cookie, flow.counter),
        Direction::Down => {
            flow.counter.await_window();
            let pace = server_rate(flow).map(|rate| Pace::new(rate, flow.number, flow.spec.flows));
            let mut sender = Sender::new(flow.socket, flow.spec, flow.counter, pace);
            let mut lateness = Lateness::new(flow.counter);
            sender.send(flow.cookie, &mut |by| lateness.record(by))
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

/// The sending end of a flow.
struct Sender<'a> {
    socket: &'a UdpSocket,
    datagram: Vec<u8>,
    pace: Option<Pace>,
    counter: Counter<'a>,
}

impl<'a> Sender<'a> {
    fn new(socket: &'a UdpSocket, spec: &Spec, counter: Counter<'a>, pace: Option<Pace>) -> Self {
        Self {
            socket,
            datagram: payload::pattern(spec.message).to_vec(),
            pace,
            counter,
        }
    }

    /// Sends until the test stops or has sent all of its bytes, at the pace or as fast as it goes. Then it tells the
    /// other end that no more follow, so that it need not wait long for datagrams that are lost. `late` takes how late
    /// a datagram was sent, where it has a pace.
    fn send(&mut self, cookie: &Cookie, late: &mut dyn FnMut(Duration)) -> io::Result<()> {
        self.send_messages(late)?;
        send_last(self.socket, cookie)
    }

    fn send_messages(&mut self, late: &mut dyn FnMut(Duration)) -> io::Result<()> {
        let epoch = Instant::now();
        let size = self.datagram.len();
        let mut number = 0;
        while !self.counter.is_stopped() {
            if let Some(pace) = &mut self.pace {
                match pace.wait(|| self.counter.is_stopped()) {
                    Some(due) => late(due.elapsed()),
                    None => return Ok(()),
                }
            }
            // Datagrams have one size: the last one may be more than what is left.
            if self.counter.take_budget(size) == 0 {
                self.counter.count_finished();
                return Ok(());
            }
            write_header(&mut self.datagram, number, epoch);
            match datagram::send(self.socket, &self.datagram, self.counter)? {
                true => {
                    number += 1;
                    self.counter.count(size);
                }
                false => self.counter.return_budget(size),
            }
        }
        Ok(())
    }
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
fn receive(socket: &UdpSocket, cookie: &Cookie, counter: Counter<'_>) -> io::Result<()> {
    let last = last_of(cookie);
    let mut room = vec![0; datagram::MAX_DATAGRAM_BYTES];
    let mut ending = false;
    while !counter.is_stopped() {
        let received = match socket.recv(&mut room) {
            Ok(received) => received,
            Err(error) if timed_out(&error) && ending => return Ok(()),
            Err(error) if timed_out(&error) || is_loss(&error) => continue,
            Err(error) => return Err(error),
        };
        let datagram = room.get(..received).unwrap_or_default();
        if datagram == cookie {
            datagram::repeat(socket, cookie)?;
        } else if datagram == last {
            // The sender may be gone.
            let _ = socket.send(&last);
            if !ending {
                counter.count_finished();
            }
            ending = true;
            socket.set_read_timeout(Some(REORDERING))?;
        } else if !datagram.is_empty() {
            // An empty one says that the socket was shut down.
            counter.count_datagram(datagram);
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::flow::Totals;

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
        let cookie = [7; COOKIE];
        let last = last_of(&cookie);
        let [mut first, mut second] = [[0; MESSAGE]; 2];
        write_header(&mut first, 0, Instant::now());
        write_header(&mut second, 1, Instant::now());
        for datagram in [&second[..], &last, &first, &first] {
            sender.send(datagram).unwrap();
        }
        let totals = Totals::new(&Spec::new(crate::Test::UdpStream, Duration::from_secs(1)));
        let window = totals.open_window();
        // The test goes on: only the last datagram ends the flow.
        receive(&receiver, &cookie, totals.counter(0)).unwrap();
        // It has waited for what may have been overtaken, and the window ends before that.
        let whole = totals.close_window(&window, 0).window_ns;
        let ended = totals.close_window(&window, 1).window_ns;
        let waited = u64::try_from(REORDERING.as_nanos()).unwrap();
        assert!(ended + waited <= whole, "{ended} of {whole}");
        assert_eq!((totals.messages(), totals.bytes()), (2, 2 * MESSAGE as u64));
        let arrivals = totals.arrivals();
        let counts = (arrivals.unique, arrivals.duplicates, arrivals.reordered);
        assert_eq!(counts, (2, 1, 1));
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
