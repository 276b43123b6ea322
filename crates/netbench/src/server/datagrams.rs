//! A flow of datagrams at the server. It sends nothing before the client has shown the test's cookie from the address
//! of its control connection: a forged source gets nothing.

use std::io;
use std::net::UdpSocket;

use super::sockets::Test;
use crate::flow::DatagramFlow;
use crate::flow::datagram::send;
use crate::message::COOKIE;
use crate::socket::timed_out;
use crate::test::method::ServeDatagrams;

pub(super) fn serve(
    test: &Test<'_>,
    number: u16,
    socket: &UdpSocket,
    serve: ServeDatagrams,
) -> io::Result<()> {
    test.totals.register(&socket.into())?;
    if !meet(test, socket)? {
        return Ok(());
    }
    serve(&DatagramFlow {
        number,
        socket,
        cookie: &test.cookie,
        spec: test.spec,
        max_bits_per_s: test.shared.limits.bits_per_s,
        totals: test.totals,
    })
}

/// Waits for the client's cookie and returns it. False if the test stopped first.
fn meet(test: &Test<'_>, socket: &UdpSocket) -> io::Result<bool> {
    let mut room = [0; COOKIE + 1];
    while !test.totals.is_stopped() {
        match socket.recv_from(&mut room) {
            Ok((COOKIE, from)) if from.ip() == test.peer && room.starts_with(&test.cookie) => {
                socket.connect(from)?;
                send(socket, &test.cookie)?;
                return Ok(true);
            }
            Ok(_) => test.count_stranger(),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
