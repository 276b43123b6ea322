//! One flow at the client, and how it reaches the server.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::Totals;
use crate::message::{COOKIE, Cookie};
use crate::socket::{self, timed_out};
use crate::spec::{Direction, Spec};

/// A flow reaches the server within this, or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One flow at the client.
#[derive(Clone, Copy)]
pub(crate) struct ClientFlow<'a> {
    pub(crate) number: u16,
    /// The server's address for this flow.
    pub(crate) to: SocketAddr,
    pub(crate) cookie: Cookie,
    pub(crate) spec: &'a Spec,
    pub(crate) totals: &'a Totals,
}

impl ClientFlow<'_> {
    /// Connects, and exchanges the cookie.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let socket = socket::tcp(self.to.ip(), self.spec)?;
        socket.connect_timeout(&self.to.into(), CONNECT_TIMEOUT)?;
        let mut stream = TcpStream::from(socket);
        self.totals.register(&(&stream).into())?;
        stream.write_all(&self.cookie)?;
        let mut back = Cookie::default();
        stream.read_exact(&mut back)?;
        self.totals.count_connected();
        Ok(stream)
    }

    /// Opens a socket, and sends the cookie until it comes back. From then on all datagrams belong to the test.
    pub(crate) fn meet(&self) -> io::Result<UdpSocket> {
        let any = match self.to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = socket::udp((any, 0).into(), self.spec)?;
        socket.connect(self.to)?;
        self.totals.register(&(&socket).into())?;
        let begun = Instant::now();
        let mut room = [0; COOKIE];
        while begun.elapsed() < CONNECT_TIMEOUT {
            socket.send(&self.cookie)?;
            match socket.recv(&mut room) {
                Ok(COOKIE) if room == self.cookie => {
                    self.totals.count_connected();
                    return Ok(socket);
                }
                // The returned cookie was lost, but a server that sends has received ours.
                Ok(_) if self.spec.direction == Direction::Down => {
                    self.totals.count(self.spec.message as usize);
                    self.totals.count_connected();
                    return Ok(socket);
                }
                Ok(_) => {}
                Err(error) if timed_out(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let why = format!("no datagram comes back from {}", self.to);
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::thread;

    use super::*;
    use crate::test::Test;

    #[test]
    fn datagram_from_server_replaces_lost_cookie() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let spec = Spec {
            direction: Direction::Down,
            ..Spec::new(Test::UdpStream, Duration::from_secs(1))
        };
        let totals = Totals::default();
        let flow = ClientFlow {
            number: 0,
            to: server.local_addr().unwrap(),
            cookie: Cookie::default(),
            spec: &spec,
            totals: &totals,
        };
        thread::scope(|scope| {
            let met = scope.spawn(|| flow.meet());
            let (_, from) = server.recv_from(&mut [0; COOKIE]).unwrap();
            // The answer is lost: the first that comes is one of the test's.
            server.send_to(&[1; 1472], from).unwrap();
            met.join().unwrap().unwrap();
        });
        assert_eq!((totals.connected(), totals.messages()), (1, 1));
        assert_eq!(totals.bytes(), 1472);
    }
}
