//! `tcp_stream`: one end writes to a connection, the other reads.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::method::{Method, ServerPart};
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::{ClientFlow, Clock, ConnectionFlow, Counter, Lateness, payload};
use crate::pace::Pace;
use crate::socket::timed_out;
use crate::spec::{Direction, Spec};

pub(super) static FACTS: Facts = Facts {
    quantity: Quantity::Transfer,
    transport: Transport::Connections,
    sizes: Sizes::Message { default: 128 << 10 },
    rate: Rate::Optional,
    single_flow: false,
    busy_poll: true,
};

pub(super) static METHOD: Method = Method::Flows {
    client,
    server: ServerPart::Connection(server),
};

fn client(flow: &ClientFlow<'_>, clock: &mut Clock<'_>) -> io::Result<()> {
    let mut stream = flow.connect()?;
    match flow.spec.direction {
        Direction::Up => {
            flow.counter.await_window();
            let pace = flow.pace();
            let mut late = |by| clock.record_lateness(by);
            send(&mut stream, flow.spec, flow.counter, pace, &mut late)
        }
        Direction::Down => receive(&mut stream, flow.counter),
    }
}

fn server(flow: &mut ConnectionFlow<'_>) -> io::Result<()> {
    match flow.spec.direction {
        Direction::Up => receive(&mut flow.stream, flow.counter),
        Direction::Down => {
            flow.counter.await_window();
            let pace = (flow.spec.rate).map(|rate| Pace::new(rate, flow.number, flow.spec.flows));
            let mut lateness = Lateness::new(flow.counter);
            let mut late = |by| lateness.record(by);
            send(&mut flow.stream, flow.spec, flow.counter, pace, &mut late)
        }
    }
}

/// Writes until the test stops or has sent all of its bytes, at the pace or as fast as it goes. `late` takes how late a
/// write began, where it has a pace.
fn send(
    stream: &mut TcpStream,
    spec: &Spec,
    counter: Counter<'_>,
    mut pace: Option<Pace>,
    late: &mut dyn FnMut(Duration),
) -> io::Result<()> {
    let message = payload::pattern(spec.message);
    // A large message over a slow path is then counted in parts.
    stream.set_write_timeout(Some(payload::WRITE_TIMEOUT))?;
    // The part of a paced message that is still to be written.
    let mut left = 0;
    while !counter.is_stopped() {
        if let Some(pace) = pace.as_mut().filter(|_| left == 0) {
            match pace.wait(|| counter.is_stopped()) {
                Some(due) => late(due.elapsed()),
                None => break,
            }
        }
        if left == 0 {
            left = message.len();
        }
        let budget = counter.take_budget(left);
        let Some(bytes) = message.get(..budget).filter(|bytes| !bytes.is_empty()) else {
            counter.count_finished();
            break;
        };
        let written = match stream.write(bytes) {
            Ok(written) => written,
            // A dead connection reports ETIMEDOUT, which is another kind.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        counter.return_budget(budget - written);
        if written > 0 {
            counter.count(written);
        }
        left = match pace {
            Some(_) => left - written,
            None => 0,
        };
    }
    stream.shutdown(Shutdown::Write)
}

/// Reads until the other end closes the connection.
fn receive(stream: &mut TcpStream, counter: Counter<'_>) -> io::Result<()> {
    let mut room = payload::stream_room(counter.flows());
    loop {
        match stream.read(&mut room) {
            Ok(0) => {
                // Whatever the control connection says later, nothing is on the way any more.
                counter.count_finished();
                return Ok(());
            }
            Ok(read) => counter.count(read),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
}
