//! The server's part of each test: its sockets, and a thread for each flow.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{POLL_INTERVAL, Ports, Shared, datagrams, readable};
use crate::client::STACK;
use crate::flow::{ConnectionFlow, PolledStream, Totals, payload};
use crate::message::{COOKIE, Cookie, flow_cookie, flow_of};
use crate::socket;
use crate::spec::Spec;
use crate::test::method::{ServeConnection, ServeDatagrams, ServeRequest, ServerPart};

/// A connection shows its cookie within this.
const COOKIE_TIMEOUT: Duration = Duration::from_secs(10);

/// A test that runs.
#[derive(Clone, Copy)]
pub(super) struct Test<'a> {
    pub(super) shared: &'a Shared,
    pub(super) spec: &'a Spec,
    pub(super) peer: IpAddr,
    pub(super) cookie: Cookie,
    pub(super) totals: &'a Totals,
}

/// The sockets of a test, and what serves its flows.
pub(super) enum Sockets {
    Connection(TcpListener, ServeConnection),
    Request(TcpListener, ServeRequest),
    Datagrams(Vec<UdpSocket>, ServeDatagrams),
}

impl Sockets {
    /// Opens them at the address where the client has reached the server, on free ports of these.
    pub(super) fn open(
        local: SocketAddr,
        spec: &Spec,
        flow: ServerPart,
        ports: Option<&Ports>,
    ) -> io::Result<Self> {
        let any = (0..=0).into();
        let ports = ports.unwrap_or(&any);
        // A link-local address keeps its device.
        let at = |port| {
            let mut at = local;
            at.set_port(port);
            at
        };
        let listen = || ports.first_free(|port| socket::listen(at(port), spec));
        let datagrams = |port| {
            let at: SocketAddr = at(port);
            let socket = socket::udp(at.ip(), spec)?;
            SockRef::from(&socket).bind(&at.into())?;
            Ok(socket)
        };
        let bind = |_| ports.first_free(datagrams);
        Ok(match flow {
            ServerPart::Connection(serve) => Self::Connection(listen()?, serve),
            ServerPart::Request(serve) => Self::Request(listen()?, serve),
            ServerPart::Datagrams(serve) => {
                let sockets = (0..spec.flows).map(bind);
                Self::Datagrams(sockets.collect::<io::Result<_>>()?, serve)
            }
        })
    }

    /// One port for all flows, or one for each.
    pub(super) fn ports(&self) -> io::Result<Vec<u16>> {
        match self {
            Self::Connection(listener, _) | Self::Request(listener, _) => {
                Ok(vec![listener.local_addr()?.port()])
            }
            Self::Datagrams(sockets, _) => sockets
                .iter()
                .map(|socket| Ok(socket.local_addr()?.port()))
                .collect(),
        }
    }

    /// Returns at once; its threads run until the test is aborted.
    ///
    /// # Errors
    /// When a thread cannot start. Others may run already.
    pub(super) fn serve<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        test: &Test<'scope>,
    ) -> io::Result<()> {
        let test = *test;
        match self {
            Self::Connection(listener, serve) => {
                let accept = move || {
                    test.totals
                        .run(|| test.accept_flows(scope, &listener, serve));
                };
                Builder::new().spawn_scoped(scope, accept)?;
            }
            Self::Request(listener, serve) => {
                let listener = Arc::new(listener);
                // As many at once as the client opens, or it would measure a queue.
                for _ in 0..test.spec.flows {
                    let listener = Arc::clone(&listener);
                    let accept = move || test.totals.run(|| test.accept_requests(&listener, serve));
                    Builder::new()
                        .stack_size(STACK)
                        .spawn_scoped(scope, accept)?;
                }
            }
            Self::Datagrams(sockets, serve) => {
                for (number, socket) in (0..).zip(sockets) {
                    let serve = move || {
                        test.totals
                            .run(|| datagrams::serve(&test, number, &socket, serve));
                    };
                    Builder::new()
                        .stack_size(STACK)
                        .spawn_scoped(scope, serve)?;
                }
            }
        }
        Ok(())
    }
}

impl<'scope> Test<'scope> {
    /// Accepts a connection for each flow, and serves each in a thread.
    fn accept_flows(
        self,
        scope: &'scope Scope<'scope, '_>,
        listener: &TcpListener,
        serve: ServeConnection,
    ) -> io::Result<()> {
        self.listen(listener)?;
        let mut flows = 0;
        while let Some((number, stream)) = self.accept(listener)? {
            // More connections than the test has flows are not the client's.
            if flows == self.spec.flows {
                self.count_stranger();
                continue;
            }
            flows += 1;
            self.totals.register(&(&stream).into())?;
            let serve = move || self.totals.run(|| self.serve_flow(number, stream, serve));
            Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, serve)?;
        }
        Ok(())
    }

    /// Accepts a connection for each request, and answers one after the other.
    fn accept_requests(self, listener: &TcpListener, serve: ServeRequest) -> io::Result<()> {
        self.listen(listener)?;
        let mut room = payload::room(self.spec.request);
        let mut sized = false;
        while let Some((number, stream)) = self.accept(listener)? {
            if !sized {
                // All sockets of the test are alike.
                self.totals.record_buffers(&(&stream).into());
                sized = true;
            }
            // The client sees what goes wrong.
            let mut polled = PolledStream::new(&stream, self.totals, None);
            let counter = self.totals.counter(number);
            if serve(&mut polled, self.spec, &mut room, counter).is_ok() {
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
        Ok(())
    }

    fn listen(&self, listener: &TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.totals.register_listener(&listener.into())
    }

    /// The next connection that shows the cookie, and the number of its flow; none once the test has stopped.
    fn accept(&self, listener: &TcpListener) -> io::Result<Option<(u16, TcpStream)>> {
        while !self.totals.is_stopped() {
            if !readable(listener) {
                continue;
            }
            let (stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if socket::timed_out(&error) => continue,
                Err(error) => return Err(error),
            };
            if from.ip() == self.peer
                && let Ok(number) = self.read_cookie(&stream)
            {
                return Ok(Some((number, stream)));
            }
            self.count_stranger();
        }
        Ok(None)
    }

    pub(super) fn count_stranger(&self) {
        self.shared.strangers.fetch_add(1, Relaxed);
    }

    /// The number of the flow whose cookie a connection shows.
    fn read_cookie(&self, stream: &TcpStream) -> io::Result<u16> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        stream.set_write_timeout(Some(POLL_INTERVAL))?;
        let until = Some(Instant::now() + COOKIE_TIMEOUT);
        let mut shown = [0; COOKIE];
        PolledStream::new(stream, self.totals, until).read_exact(&mut shown)?;
        let number = flow_of(&shown, &self.cookie).filter(|number| *number < self.spec.flows);
        number.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    /// Serves a connection for the whole test, which is shut down when the test ends.
    fn serve_flow(
        &self,
        number: u16,
        mut stream: TcpStream,
        serve: ServeConnection,
    ) -> io::Result<()> {
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        stream.write_all(&flow_cookie(&self.cookie, number))?;
        serve(&mut ConnectionFlow {
            number,
            stream,
            spec: self.spec,
            counter: self.totals.counter(number),
        })
    }
}
