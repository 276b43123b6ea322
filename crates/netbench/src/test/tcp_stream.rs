//! `tcp_stream`: one end writes to a connection, the other reads.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use super::method::{Method, ServerPart};
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::{ClientFlow, Clock, Totals, payload};
use crate::socket::timed_out;
use crate::spec::{Direction, Spec};

pub(super) static FACTS: Facts = Facts {
    quantity: Quantity::Transfer,
    transport: Transport::Connections,
    sizes: Sizes::Message { default: 128 << 10 },
    rate: Rate::None,
    single_flow: false,
    busy_poll: true,
};

pub(super) static METHOD: Method = Method::Flows {
    client,
    server: ServerPart::Connection(server),
};

fn client(flow: &ClientFlow<'_>, _clock: &mut Clock<'_>) -> io::Result<()> {
    let mut stream = flow.connect()?;
    match flow.spec.direction {
        Direction::Up => send(&mut stream, flow.spec, flow.totals),
        Direction::Down => receive(&mut stream, flow.totals),
    }
}

fn server(stream: &mut TcpStream, spec: &Spec, totals: &Totals) -> io::Result<()> {
    match spec.direction {
        Direction::Up => receive(stream, totals),
        Direction::Down => send(stream, spec, totals),
    }
}

/// Writes until the test stops.
fn send(stream: &mut TcpStream, spec: &Spec, totals: &Totals) -> io::Result<()> {
    let bytes = payload::zeros(spec.message);
    // A large message over a slow path is then counted in parts.
    stream.set_write_timeout(Some(payload::WRITE_TIMEOUT))?;
    while !totals.is_stopped() {
        match stream.write(bytes) {
            Ok(written) => totals.count(written),
            // A dead connection reports ETIMEDOUT, which is another kind.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.shutdown(Shutdown::Write)
}

/// Reads until the other end closes the connection.
fn receive(stream: &mut TcpStream, totals: &Totals) -> io::Result<()> {
    let mut room = vec![0; payload::MAX_READ];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return Ok(()),
            Ok(read) => totals.count(read),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
}
