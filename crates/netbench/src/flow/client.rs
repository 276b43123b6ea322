//! One flow at the client, and how it reaches the server.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::Counter;
use super::datagram::repeat;
use crate::message::{COOKIE, Cookie, flow_cookie};
use crate::pace::Pace;
use crate::socket::{self, Source, timed_out};
use crate::spec::{Direction, Spec};

/// A flow reaches the server within this and two round trips, or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One flow at the client.
#[derive(Clone, Copy)]
pub(crate) struct ClientFlow<'a> {
    pub(crate) number: u16,
    /// The server's address for this flow.
    pub(crate) to: SocketAddr,
    /// The test's cookie, with the number of this flow.
    pub(crate) cookie: Cookie,
    pub(crate) spec: &'a Spec,
    pub(crate) source: &'a Source,
    pub(crate) counter: Counter<'a>,
    connect_timeout: Duration,
}

impl<'a> ClientFlow<'a> {
    pub(crate) fn new(
        number: u16,
        to: SocketAddr,
        cookie: &Cookie,
        spec: &'a Spec,
        source: &'a Source,
        counter: Counter<'a>,
    ) -> Self {
        Self {
            number,
            to,
            cookie: flow_cookie(cookie, number),
            spec,
            source,
            counter,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// With time for a path that takes long.
    pub(crate) fn with_round_trip(self, round_trip: Duration) -> Self {
        Self {
            connect_timeout: CONNECT_TIMEOUT + round_trip * 2,
            ..self
        }
    }

    /// The time in which it reaches the server, and in which the server answers a connection of its own.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Whether all its sockets have the same local port.
    pub(crate) fn has_fixed_port(&self) -> bool {
        self.source.port.is_some()
    }

    /// The times of this flow's messages; none if each follows as soon as it can.
    pub(crate) fn pace(&self) -> Option<Pace> {
        let spec = self.spec;
        spec.rate
            .map(|rate| Pace::new(rate, self.number, spec.flows))
    }

    /// A socket that is connected to the server.
    pub(crate) fn open(&self) -> io::Result<TcpStream> {
        let socket = socket::tcp(self.to.ip(), self.spec)?;
        self.source
            .bind(&SockRef::from(&socket), self.to, self.number)?;
        let connected = socket.connect_timeout(&self.to.into(), self.connect_timeout);
        connected.map_err(|cause| self.explain(&cause))?;
        Ok(socket.into())
    }

    /// An error of reaching the server, with its likely cause.
    fn explain(&self, cause: &io::Error) -> io::Error {
        let hint = match cause.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => {
                "; a firewall may drop the connections of tests: serve with --data-ports and open these"
            }
            io::ErrorKind::ConnectionRefused => {
                "; a firewall may reject what tests send: serve with --data-ports and open these"
            }
            io::ErrorKind::AddrNotAvailable if self.has_fixed_port() => {
                "; another connection to the server has this local port"
            }
            io::ErrorKind::AddrNotAvailable => {
                "; all local ports are in use: see sysctl net.ipv4.ip_local_port_range"
            }
            _ => "",
        };
        let what = format!("{}: {cause}{hint}", self.to);
        io::Error::new(cause.kind(), what)
    }

    /// Connects, and exchanges the cookie.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let mut stream = self.open()?;
        self.counter.register(&(&stream).into())?;
        stream.write_all(&self.cookie)?;
        let mut back = Cookie::default();
        stream.read_exact(&mut back)?;
        self.counter.count_connected();
        Ok(stream)
    }

    /// Opens a socket, and sends the cookie until it comes back. From then on all datagrams belong to the test.
    pub(crate) fn meet(&self) -> io::Result<UdpSocket> {
        let socket = socket::udp(self.to.ip(), self.spec)?;
        self.source
            .bind(&SockRef::from(&socket), self.to, self.number)?;
        socket.connect(self.to)?;
        socket::fit_path(&socket, self.spec, self.to.is_ipv6())?;
        self.counter.register(&(&socket).into())?;
        let begun = Instant::now();
        let mut room = [0; COOKIE];
        while begun.elapsed() < self.connect_timeout {
            // A queue or a firewall of this machine may refuse one, and take the next.
            repeat(&socket, &self.cookie)?;
            match socket.peek(&mut room) {
                Ok(COOKIE) if room == self.cookie => {
                    socket.recv(&mut room)?;
                    self.counter.count_connected();
                    return Ok(socket);
                }
                // The returned cookie was lost, but a server that sends has received ours. The datagram is the test's.
                Ok(_) if self.spec.direction == Direction::Down => {
                    self.counter.count_connected();
                    return Ok(socket);
                }
                Ok(_) => {
                    socket.recv(&mut room)?;
                }
                Err(error) if timed_out(&error) => {}
                Err(error) => return Err(self.explain(&error)),
            }
        }
        let why = format!(
            "no UDP datagram comes back from {} within {} s; a firewall may drop UDP in the way",
            self.to,
            self.connect_timeout.as_secs()
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::thread;

    use super::*;
    use crate::flow::Totals;
    use crate::test::Test;

    #[test]
    fn datagram_from_server_replaces_lost_cookie() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let spec = Spec {
            direction: Direction::Down,
            ..Spec::new(Test::UdpStream, Duration::from_secs(1))
        };
        let totals = Totals::new(&spec);
        let (source, to) = (Source::default(), server.local_addr().unwrap());
        let flow = ClientFlow::new(0, to, &Cookie::default(), &spec, &source, totals.counter(0));
        thread::scope(|scope| {
            let met = scope.spawn(|| flow.meet());
            let (_, from) = server.recv_from(&mut [0; COOKIE]).unwrap();
            // The answer is lost: the first that comes is one of the test's.
            server.send_to(&[1; 1472], from).unwrap();
            let met = met.join().unwrap().unwrap();
            // It is still there for the test.
            assert_eq!(met.recv(&mut [0; 2000]).unwrap(), 1472);
        });
        assert_eq!((totals.connected(), totals.messages()), (1, 0));
    }
}
