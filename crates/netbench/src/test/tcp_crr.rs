//! `tcp_crr`: a connection for each request, timed from its opening until the response is there.

use std::io::{self, Read as _};
use std::net::TcpStream;

use super::method::{Method, ServerPart};
use super::{Facts, Quantity, Rate, Sizes, Transport};
use crate::flow::{ANSWER_TIMEOUT, ClientFlow, Clock, payload};
use crate::socket;

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
    server: ServerPart::Request(|stream, spec, room, totals| {
        payload::respond(stream, spec, room, totals)
    }),
};

fn request(flow: &ClientFlow<'_>, clock: &mut Clock<'_>) -> io::Result<()> {
    let (spec, totals) = (flow.spec, flow.totals);
    totals.count_connected();
    clock.start(spec, flow.number);
    // The cookie and the request in one write.
    let mut request = flow.cookie.to_vec();
    request.resize(request.len() + spec.request as usize, 0);
    let mut room = payload::room(spec.response);
    let mut sized = false;
    while let Some(transaction) = clock.begin() {
        let socket = socket::tcp(flow.to.ip(), spec)?;
        socket.connect_timeout(&flow.to.into(), ANSWER_TIMEOUT * 5)?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(ANSWER_TIMEOUT * 5))?;
        // A small request needs none, and this call is part of the time.
        if request.len() > LARGE {
            stream.set_write_timeout(Some(payload::WRITE_TIMEOUT))?;
        }
        payload::write(&mut stream, &request, totals)?;
        payload::read(&mut stream, spec.response, &mut room, totals)?;
        clock.complete(transaction, spec.response as usize);
        if !sized {
            // All sockets of the test are alike.
            totals.record_buffers(&(&stream).into());
            sized = true;
        }
        // The server closes first, so that TIME-WAIT is at its end, which has room for it.
        let _end = stream.read(&mut [0]);
    }
    Ok(())
}
