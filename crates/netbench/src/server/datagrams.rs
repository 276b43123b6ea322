//! A flow of datagrams at the server. It sends nothing before the client has shown the test's cookie from the address
//! of its control connection: a forged source gets nothing.

use std::io;
use std::net::UdpSocket;

use super::sockets::Test;
use crate::flow::DatagramFlow;
use crate::flow::datagram::repeat;
use crate::message::{COOKIE, Cookie, flow_cookie};
use crate::socket::{fit_path, timed_out};
use crate::test::method::ServeDatagrams;

pub(super) fn serve(
    test: &Test<'_>,
    number: u16,
    socket: &UdpSocket,
    serve: ServeDatagrams,
) -> io::Result<()> {
    test.totals.register(&socket.into())?;
    let cookie = flow_cookie(&test.cookie, number);
    if !meet(test, socket, &cookie)? {
        return Ok(());
    }
    fit_path(socket, test.spec, test.peer.is_ipv6())?;
    serve(&DatagramFlow {
        number,
        socket,
        cookie: &cookie,
        spec: test.spec,
        max_bits_per_s: test.shared.limits.bits_per_s,
        counter: test.totals.counter(number),
    })
}

/// Waits for the client's cookie and returns it. False if the test stopped first.
fn meet(test: &Test<'_>, socket: &UdpSocket, cookie: &Cookie) -> io::Result<bool> {
    let mut room = [0; COOKIE + 1];
    while !test.totals.is_stopped() {
        match socket.recv_from(&mut room) {
            Ok((COOKIE, from)) if from.ip() == test.peer && room.starts_with(cookie) => {
                socket.connect(from)?;
                repeat(socket, cookie)?;
                return Ok(true);
            }
            Ok(_) => test.count_stranger(),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
