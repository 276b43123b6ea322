//! One client: its authentication, and one test after the other.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use super::connections::Entry;
use super::{Shared, readable, sockets};
use crate::flow::Totals;
use crate::message::{
    Authenticator, COOKIE, Cookie, Fault, MAX_HELLO, TimedStream, ToClient, ToServer, flow_cookie,
    receive_at_most, receive_greeting, send, send_greeting,
};
use crate::socket::{self, Source, path_mtu_to};
use crate::spec::{Direction, Spec, micros};
use crate::test::method::{Method, ServerPart};
use crate::token::{CHALLENGE, Challenges, Role};

/// A client authenticates within this, and each message arrives completely within this.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause between two tests.
const IDLE_TIMEOUT: Duration = Duration::from_hours(1);
/// A test may take this much longer than its duration: connections open, queues drain.
const TEST_MARGIN: Duration = Duration::from_secs(30);
/// If no datagram arrives for this long, none is on the way.
const QUIET_TIME: Duration = Duration::from_millis(100);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The last of a given number of bytes arrive within this. A client waits longer for the answer.
const BYTES_TIMEOUT: Duration = Duration::from_secs(8);

/// Serves a client until it goes or the server stops.
///
/// # Errors
/// If it does not authenticate as a client, or is refused.
pub(super) fn serve(
    shared: &Shared,
    stream: &TcpStream,
    from: SocketAddr,
    entry: &Entry<'_>,
) -> Result<(), Fault> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let mut client = Client {
        shared,
        stream,
        from,
        authenticator: Authenticator::default(),
    };
    client.admit(entry)?;
    // From here on an error ends a test, and does not count as a refusal.
    while let Ok(message) = client.receive(IDLE_TIMEOUT) {
        let begun = match message {
            ToServer::Begin(spec) => client.test(&spec),
            _ => Err(Fault::Unexpected),
        };
        if begun.is_err() {
            shared.broken.fetch_add(1, Relaxed);
            break;
        }
    }
    Ok(())
}

struct Client<'a> {
    shared: &'a Shared,
    stream: &'a TcpStream,
    from: SocketAddr,
    authenticator: Authenticator,
}

impl Client<'_> {
    fn admit(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let mut stranger = TimedStream::new(MESSAGE_TIMEOUT, self.stream);
        // All that needs no answer is sent at once, which saves a round trip.
        send_greeting(&mut stranger)?;
        let bytes = socket::random::<CHALLENGE>()?;
        let token = self.shared.token.is_some();
        let challenge = ToClient::Challenge { bytes, token };
        send(&mut stranger, &challenge)?;
        receive_greeting(&mut stranger)?;
        let hello = receive_at_most(MAX_HELLO, &mut stranger)?;
        let ToServer::Hello { answer, challenge } = hello else {
            return Err(Fault::Unexpected);
        };
        let challenges = Challenges {
            server: bytes,
            client: challenge,
        };
        let known = match (&self.shared.token, answer) {
            (Some(token), Some(answer)) => token.is_answer(Role::Client, &challenges, &answer),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !known {
            return self.refuse("it does not know the token", false);
        }
        if !entry.admit(self.shared.limits.clients) {
            return self.refuse("there are as many clients as the server takes", true);
        }
        let token = self.shared.token.as_ref();
        let admitted = ToClient::Admitted {
            answer: token.map(|token| token.answer(Role::Server, &challenges)),
            path_mtu: path_mtu_to(self.from, &Source::default()).ok(),
            max_duration_us: micros(self.shared.limits.duration),
        };
        send(&mut stranger, &admitted)?;
        let key = token.map(|token| token.session_key(&challenges));
        self.authenticator = Authenticator::new(key);
        Ok(())
    }

    fn refuse(&mut self, why: &str, later: bool) -> Result<(), Fault> {
        let why = why.to_owned();
        let mut stranger = TimedStream::new(MESSAGE_TIMEOUT, self.stream);
        send(&mut stranger, &ToClient::Refused { why, later })?;
        Err(Fault::Unexpected)
    }

    fn send(&mut self, message: &ToClient) -> Result<(), Fault> {
        let mut stream = TimedStream::new(MESSAGE_TIMEOUT, self.stream);
        self.authenticator.send(Role::Server, &mut stream, message)
    }

    /// Receives the next message, which must begin within this time, unless the server stops. It arrives completely
    /// within [`MESSAGE_TIMEOUT`], in however small pieces.
    fn receive(&mut self, within: Duration) -> Result<ToServer, Fault> {
        let begun = Instant::now();
        while !readable(self.stream) {
            if self.shared.is_stopped() || begun.elapsed() > within {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
        let mut stream = TimedStream::new(MESSAGE_TIMEOUT, self.stream);
        self.authenticator.receive(Role::Client, &mut stream)
    }

    /// Runs one test, or declines it.
    ///
    /// # Errors
    /// When the control connection fails.
    fn test(&mut self, spec: &Spec) -> Result<(), Fault> {
        let flow = match self.check(spec) {
            Ok(flow) => flow,
            Err(why) => return self.send(&ToClient::Declined { why, later: false }),
        };
        let mut cookie: Cookie = flow_cookie(&socket::random::<COOKIE>()?, 0);
        cookie[0] = 0;
        let local = self.stream.local_addr()?;
        let ports = self.shared.data_ports.as_ref();
        let opened = match sockets::Sockets::open(local, spec, flow, ports) {
            Ok(opened) => opened,
            Err(error) => return self.send(&declined(&error)),
        };
        let ports = opened.ports()?;
        let totals = Totals::new(spec);
        let test = sockets::Test {
            shared: self.shared,
            spec,
            peer: self.from.ip(),
            cookie,
            totals: &totals,
        };
        thread::scope(|scope| {
            let _cut = totals.abort_on_drop();
            if let Err(error) = opened.serve(scope, &test) {
                return self.send(&declined(&error));
            }
            self.shared.tests.fetch_add(1, Relaxed);
            self.send(&ToClient::Ready { ports, cookie })?;
            self.follow(spec, &totals)
        })
    }

    /// The server's part of a test that the client may run; else why it may not.
    fn check(&self, spec: &Spec) -> Result<ServerPart, String> {
        spec.check().map_err(|invalid| invalid.to_string())?;
        let Method::Flows { server, .. } = *spec.test.method() else {
            return Err(format!("{} has no part here", spec.test));
        };
        let limits = &self.shared.limits;
        if spec.duration() + spec.warmup() > limits.duration {
            let most = limits.duration.as_secs();
            return Err(format!("the server allows no test longer than {most} s"));
        }
        Ok(server)
    }

    /// Opens and closes the window as the client asks, and reports what the flows counted.
    fn follow(&mut self, spec: &Spec, totals: &Totals) -> Result<(), Fault> {
        let ToServer::Mark = self.receive(spec.warmup() + TEST_MARGIN)? else {
            return Err(Fault::Unexpected);
        };
        let window = totals.open_window();
        if spec.confirms_window() {
            self.send(&ToClient::Marked)?;
        }
        let ToServer::End { bytes } = self.receive(spec.duration() + TEST_MARGIN)? else {
            return Err(Fault::Unexpected);
        };
        // A connection loses nothing: missing bytes are late.
        let quiet = match spec.test.datagrams() {
            true => QUIET_TIME,
            false => DRAIN_TIMEOUT,
        };
        if spec.confirms_window() {
            // All bytes are part of the window, also those that are on the way.
            totals.drain(bytes, quiet, BYTES_TIMEOUT);
        }
        let end = totals.close_window(&window, spec.flows);
        // After transactions nothing is on the way: the client has waited for every answer.
        if spec.test.streams() {
            let due = match spec.direction {
                Direction::Up => bytes,
                Direction::Down => {
                    totals.stop();
                    u64::MAX
                }
            };
            totals.drain(due, quiet, DRAIN_TIMEOUT);
        }
        let mut end = totals.complete_end(end);
        end.path_mtu = path_mtu_to(self.from, &Source::default()).ok();
        let fault = totals.fault();
        self.send(&ToClient::Ended { end, fault })
    }
}

/// The answer to a test whose sockets cannot be opened; later they may be, unless the error is permanent.
fn declined(error: &io::Error) -> ToClient {
    let permanent = [io::ErrorKind::InvalidInput, io::ErrorKind::PermissionDenied];
    ToClient::Declined {
        why: error.to_string(),
        later: !permanent.contains(&error.kind()),
    }
}
