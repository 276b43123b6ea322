//! `tcp_crr`: a connection for each request, timed from its opening until the response is there.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::time::Duration;

use socket2::SockRef;

use super::method::{Method, ServerPart};
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::{ClientFlow, Clock, payload};

/// A request of more bytes than these may take long to write.
const LARGE: usize = 64 << 10;

pub(super) static FACTS: Facts = Facts {
    quantity: Quantity::Latency,
    transport: Transport::Connections,
    sizes: Sizes::Transaction,
    rate: Rate::Optional,
    single_flow: false,
    busy_poll: true,
};

pub(super) static METHOD: Method = Method::Flows {
    client: request,
    server: ServerPart::Request(|stream, spec, room, counter| {
        payload::respond(stream, spec, room, counter)
    }),
};

fn request(flow: &ClientFlow<'_>, clock: &mut Clock<'_>) -> io::Result<()> {
    let (spec, counter) = (flow.spec, flow.counter);
    counter.count_connected();
    clock.start(spec, flow.number);
    // The cookie and the request in one write.
    let mut request = flow.cookie.to_vec();
    request.extend(payload::pattern(spec.request));
    let mut room = payload::room(spec.response);
    let mut sized = false;
    let mut answered = None;
    while let Some(transaction) = clock.begin() {
        let mut stream = flow.open()?;
        stream.set_read_timeout(Some(flow.connect_timeout()))?;
        // A small request needs none, and this call is part of the time.
        if request.len() > LARGE {
            stream.set_write_timeout(Some(payload::WRITE_TIMEOUT))?;
        }
        payload::write(&mut stream, &request, counter)?;
        payload::read(&mut stream, spec.response, &mut room, counter)?;
        clock.complete(transaction, spec.response as usize);
        if !sized {
            // All sockets of the test are alike.
            counter.record_buffers(&(&stream).into());
            sized = true;
        }
        if flow.has_fixed_port() {
            reset(stream)?;
            continue;
        }
        // While the next transaction runs the server closes this connection: to wait for that here would lower the
        // rate by a time that belongs to no transaction.
        if let Some(stream) = answered.replace(stream) {
            await_close(stream);
        }
    }
    if let Some(stream) = answered {
        await_close(stream);
    }
    Ok(())
}

/// Closes a connection after its server has: TIME-WAIT is then at the server's end, which has room for it.
fn await_close(mut stream: TcpStream) {
    let _end = stream.read(&mut [0]);
}

/// Closes a connection after its server has, and leaves no TIME-WAIT at either end: the next connection has the same
/// ports. A server in TIME-WAIT may refuse the next one for a second.
fn reset(mut stream: TcpStream) -> io::Result<()> {
    let _end = stream.read(&mut [0]);
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))
}
