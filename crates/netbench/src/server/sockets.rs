//! The server's part of each test: its sockets, and a thread for each flow.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::Scope;
use std::time::Duration;

use super::{Ports, Shared, readable, udp};
use crate::flow::{Totals, answer, stream};
use crate::message::{COOKIE, Cookie};
use crate::socket;
use crate::spec::{self, Direction, Spec};

/// Whose connection it is, it says within this.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of a test while it goes on.
#[derive(Clone, Copy)]
pub(super) struct Test<'a> {
    pub(super) shared: &'a Shared,
    pub(super) spec: &'a Spec,
    pub(super) peer: IpAddr,
    pub(super) cookie: Cookie,
    pub(super) totals: &'a Totals,
}

pub(super) enum Sockets {
    Connections(TcpListener),
    Datagrams(Vec<UdpSocket>),
}

impl Sockets {
    /// On ports that nobody has, of those `among`; where the client has reached the server.
    pub(super) fn open(local: IpAddr, spec: &Spec, among: Option<&Ports>) -> io::Result<Self> {
        let any = (0..=0).into();
        let among = among.unwrap_or(&any);
        if !spec.test.datagrams() {
            let listener = among.first_free(|port| socket::listen((local, port).into(), spec));
            return Ok(Self::Connections(listener?));
        }
        let flow = |_| among.first_free(|port| socket::udp((local, port).into(), spec));
        let flows = (0..spec.flows).map(flow);
        Ok(Self::Datagrams(flows.collect::<io::Result<_>>()?))
    }

    pub(super) fn ports(&self) -> io::Result<Vec<u16>> {
        match self {
            Self::Connections(listener) => Ok(vec![listener.local_addr()?.port()]),
            Self::Datagrams(sockets) => sockets
                .iter()
                .map(|socket| Ok(socket.local_addr()?.port()))
                .collect(),
        }
    }

    /// Returns at once; its threads go on until the test is cut.
    pub(super) fn serve<'scope>(self, scope: &'scope Scope<'scope, '_>, test: &Test<'scope>) {
        let test = *test;
        match self {
            Self::Connections(listener) => {
                scope.spawn(move || test.totals.run(|| test.accept(scope, &listener)));
            }
            Self::Datagrams(sockets) => {
                for (flow, socket) in (0..).zip(sockets) {
                    scope.spawn(move || test.totals.run(|| udp::serve(&test, flow, &socket)));
                }
            }
        }
    }
}

impl<'scope> Test<'scope> {
    fn accept(self, scope: &'scope Scope<'scope, '_>, listener: &TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let mut flows = 0;
        while !self.totals.is_stopped() {
            if !readable(listener) {
                continue;
            }
            let (mut stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if socket::timed_out(&error) => continue,
                Err(error) => return Err(error),
            };
            if from.ip() != self.peer || self.shows_cookie(&mut stream).is_err() {
                self.shared.strangers.fetch_add(1, Relaxed);
                continue;
            }
            if self.spec.test == spec::Test::TcpCrr {
                self.one(&mut stream);
                continue;
            }
            // A client that opens more than it has asked for is a stranger's.
            if flows == self.spec.flows {
                self.shared.strangers.fetch_add(1, Relaxed);
                continue;
            }
            flows += 1;
            self.totals.adopt(&stream)?;
            scope.spawn(move || {
                self.totals.run(|| {
                    stream.write_all(&self.cookie)?;
                    self.flow(&mut stream)
                })
            });
        }
        Ok(())
    }

    fn shows_cookie(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut shown = [0; COOKIE];
        stream.read_exact(&mut shown)?;
        match shown == self.cookie {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        }
    }

    /// A connection that is for one request. What goes wrong with it, the client sees.
    fn one(&self, stream: &mut TcpStream) {
        if answer::once(stream, self.spec, self.totals).is_ok() {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn flow(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.set_read_timeout(None)?;
        match (self.spec.test, self.spec.direction) {
            (spec::Test::TcpStream, Direction::Up) => stream::tcp_receive(stream, self.totals),
            (spec::Test::TcpStream, Direction::Down) => {
                stream::tcp_send(stream, self.spec.message, self.totals)?;
                stream.shutdown(Shutdown::Write)
            }
            _ => answer::tcp(stream, self.spec, self.totals),
        }
    }
}
