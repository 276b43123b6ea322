//! The server's part of each test: its sockets, and a thread for each flow.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use super::{Ports, Shared, TICK, readable, udp};
use crate::flow::{Totals, answer, payload, stream};
use crate::message::{COOKIE, Cookie};
use crate::socket;
use crate::spec::{self, Direction, Spec};

/// Whose connection it is, it says within this. Then it may be slow, but not silent for so long.
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
    pub(super) fn open(local: SocketAddr, spec: &Spec, among: Option<&Ports>) -> io::Result<Self> {
        let any = (0..=0).into();
        let among = among.unwrap_or(&any);
        // With the device that a link-local address is of.
        let at = |port| {
            let mut at = local;
            at.set_port(port);
            at
        };
        if !spec.test.datagrams() {
            let listener = among.first_free(|port| socket::listen(at(port), spec));
            return Ok(Self::Connections(listener?));
        }
        let flow = |_| among.first_free(|port| socket::udp(at(port), spec));
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
    ///
    /// # Errors
    /// When there can be no more threads. Some go on.
    pub(super) fn serve<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        test: &Test<'scope>,
    ) -> io::Result<()> {
        let test = *test;
        match self {
            Self::Connections(listener) => {
                // Connections that are for one request are served by who has accepted them: as many at once as the
                // client opens, or it would measure a queue.
                let acceptors = match test.spec.test {
                    spec::Test::TcpCrr => test.spec.flows,
                    _ => 1,
                };
                let listener = Arc::new(listener);
                for _ in 0..acceptors {
                    let listener = Arc::clone(&listener);
                    let accept = move || test.totals.run(|| test.accept(scope, &listener));
                    Builder::new().spawn_scoped(scope, accept)?;
                }
            }
            Self::Datagrams(sockets) => {
                for (flow, socket) in (0..).zip(sockets) {
                    let serve = move || test.totals.run(|| udp::serve(&test, flow, &socket));
                    Builder::new().spawn_scoped(scope, serve)?;
                }
            }
        }
        Ok(())
    }
}

impl<'scope> Test<'scope> {
    fn accept(self, scope: &'scope Scope<'scope, '_>, listener: &TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.totals.adopt_listener(&listener.into())?;
        let mut flows = 0;
        // Of all requests that this thread answers itself, one after the other.
        let mut room = match self.spec.test {
            spec::Test::TcpCrr => payload::room(self.spec.request),
            _ => Vec::new(),
        };
        while !self.totals.is_stopped() {
            if !readable(listener) {
                continue;
            }
            let (stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if socket::timed_out(&error) => continue,
                Err(error) => return Err(error),
            };
            if from.ip() != self.peer || self.shows_cookie(&stream).is_err() {
                self.shared.strangers.fetch_add(1, Relaxed);
                continue;
            }
            if self.spec.test == spec::Test::TcpCrr {
                if flows == 0 {
                    // All are alike.
                    self.totals.sizes(&(&stream).into());
                    flows = 1;
                }
                self.one(&stream, &mut room);
                continue;
            }
            // A client that opens more than it has asked for is a stranger's.
            if flows == self.spec.flows {
                self.shared.strangers.fetch_add(1, Relaxed);
                continue;
            }
            flows += 1;
            self.totals.adopt(&(&stream).into())?;
            let serve = move || self.totals.run(|| self.flow(stream));
            Builder::new().spawn_scoped(scope, serve)?;
        }
        Ok(())
    }

    fn shows_cookie(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        let until = Some(Instant::now() + PATIENCE);
        let mut shown = [0; COOKIE];
        self.patient(stream, until).read_exact(&mut shown)?;
        match shown == self.cookie {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        }
    }

    /// A connection that is for one request. What goes wrong with it, the client sees.
    fn one(&self, stream: &TcpStream, room: &mut [u8]) {
        let mut patient = self.patient(stream, None);
        if answer::once(&mut patient, self.spec, room, self.totals).is_ok() {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn patient<'a>(&'a self, stream: &'a TcpStream, until: Option<Instant>) -> Patient<'a> {
        Patient {
            stream,
            totals: self.totals,
            until,
        }
    }

    /// A connection for the whole test, which is cut when it ends.
    fn flow(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        stream.write_all(&self.cookie)?;
        match (self.spec.test, self.spec.direction) {
            (spec::Test::TcpStream, Direction::Up) => stream::tcp_receive(&mut stream, self.totals),
            (spec::Test::TcpStream, Direction::Down) => {
                stream::tcp_send(&mut stream, self.spec.message, self.totals)?;
                stream.shutdown(Shutdown::Write)
            }
            _ => answer::tcp(&mut stream, self.spec, self.totals),
        }
    }
}

/// A connection that nobody cuts: it is looked every [`TICK`] whether the test has ended.
struct Patient<'a> {
    stream: &'a TcpStream,
    totals: &'a Totals,
    /// All has to be there by then, however slowly it comes.
    until: Option<Instant>,
}

impl Patient<'_> {
    fn retry<T>(&self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut waits = None;
        loop {
            let over = self.until.is_some_and(|until| Instant::now() > until);
            if over || self.totals.is_stopped() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match act() {
                Err(error) if socket::timed_out(&error) => {
                    let waits = *waits.get_or_insert_with(Instant::now);
                    if waits.elapsed() > PATIENCE {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }
}

impl io::Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.retry(|| stream.read(into))
    }
}

impl io::Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.retry(|| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
