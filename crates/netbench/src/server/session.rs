//! One client: who it is, and one test after the other.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use super::connections::Entry;
use super::{Shared, readable, sockets};
use crate::flow::Totals;
use crate::message::{
    COOKIE, Cookie, Fault, LARGEST_HELLO, ToClient, ToServer, Within, greet, hear, hear_at_most,
    say,
};
use crate::outcome::End;
use crate::socket;
use crate::spec::{Direction, Spec, Test};
use crate::token::CHALLENGE;

/// A stranger says who it is within this, and a client what it has begun to say.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tests it may think for so long.
const IDLE: Duration = Duration::from_hours(1);
/// A test may take so much longer than it says: connections open, queues run empty.
const GRACE: Duration = Duration::from_secs(30);
/// When so long nothing has come, nothing is on the way any more.
const QUIET: Duration = Duration::from_millis(100);
const LONGEST_QUIET: Duration = Duration::from_secs(2);

/// Until the client goes, or the server stops.
///
/// # Errors
/// When it was none, or one that is not served.
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
    };
    client.admit(entry)?;
    // What goes wrong from here on ends its tests, and is none of a stranger.
    while let Ok(message) = client.hear(IDLE) {
        let begun = match message {
            ToServer::Begin(spec) => client.test(&spec),
            _ => Err(Fault::NotDue),
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
}

impl Client<'_> {
    fn admit(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let mut stranger = Within::new(PATIENCE, self.stream);
        greet(&mut stranger)?;
        let bytes = socket::random::<CHALLENGE>()?;
        let token = self.shared.token.is_some();
        self.say(&ToClient::Challenge { bytes, token })?;
        let ToServer::Hello { answer } = hear_at_most(LARGEST_HELLO, &mut stranger)? else {
            return Err(Fault::NotDue);
        };
        let known = match (&self.shared.token, answer) {
            (Some(token), Some(answer)) => token.answers(&bytes, &answer),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !known {
            return self.refuse("it does not know the token", false);
        }
        if !entry.admit(self.shared.limits.clients) {
            return self.refuse("there are as many clients as the server takes", true);
        }
        self.say(&ToClient::Admitted)
    }

    fn refuse(&mut self, why: &str, later: bool) -> Result<(), Fault> {
        let why = why.to_owned();
        self.say(&ToClient::Refused { why, later })?;
        Err(Fault::NotDue)
    }

    fn say(&mut self, message: &ToClient) -> Result<(), Fault> {
        say(&mut Within::new(PATIENCE, self.stream), message)
    }

    /// The next message, which begins within this time, unless the server stops. However it comes then, it does not put
    /// off for long what ends with it.
    fn hear(&mut self, within: Duration) -> Result<ToServer, Fault> {
        let begun = Instant::now();
        while !readable(self.stream) {
            if self.shared.stops() || begun.elapsed() > within {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
        hear(&mut Within::new(PATIENCE, self.stream))
    }

    /// # Errors
    /// When the client cannot be talked to any more.
    fn test(&mut self, spec: &Spec) -> Result<(), Fault> {
        if let Err(why) = self.allowed(spec) {
            return self.say(&ToClient::Declined { why, later: false });
        }
        let mut cookie: Cookie = socket::random::<COOKIE>()?;
        cookie[0] = 0;
        let local = self.stream.local_addr()?;
        let among = self.shared.data_ports.as_ref();
        let opened = match sockets::Sockets::open(local, spec, among) {
            Ok(opened) => opened,
            Err(error) => return self.say(&declined(&error)),
        };
        let ports = opened.ports()?;
        let totals = Totals::default();
        let test = sockets::Test {
            shared: self.shared,
            spec,
            peer: self.from.ip(),
            cookie,
            totals: &totals,
        };
        thread::scope(|scope| {
            let _cut = totals.cut_later();
            if let Err(error) = opened.serve(scope, &test) {
                return self.say(&declined(&error));
            }
            self.shared.tests.fetch_add(1, Relaxed);
            self.say(&ToClient::Ready { ports, cookie })?;
            self.follow(spec, &totals)
        })
    }

    fn allowed(&self, spec: &Spec) -> Result<(), String> {
        spec.check().map_err(|invalid| invalid.to_string())?;
        if matches!(spec.test, Test::UdpRate | Test::Icmp) {
            return Err(format!("{} has no part here", spec.test));
        }
        let limits = &self.shared.limits;
        if spec.duration() + spec.warmup() > limits.duration {
            let most = limits.duration.as_secs();
            return Err(format!("the server allows no test longer than {most} s"));
        }
        Ok(())
    }

    /// What the client says while the test goes on.
    fn follow(&mut self, spec: &Spec, totals: &Totals) -> Result<(), Fault> {
        let ToServer::Mark = self.hear(spec.warmup() + GRACE)? else {
            return Err(Fault::NotDue);
        };
        let window = totals.mark();
        let ToServer::End { bytes } = self.hear(spec.duration() + GRACE)? else {
            return Err(Fault::NotDue);
        };
        let end = totals.close(&window, spec.flows);
        // Of transactions the client has had every answer that it waited for.
        if spec.test.streams() {
            let due = match spec.direction {
                Direction::Up => bytes,
                Direction::Down => {
                    totals.stop();
                    u64::MAX
                }
            };
            // Of a connection nothing is lost: what has not come yet is late.
            let quiet = match spec.test.datagrams() {
                true => QUIET,
                false => LONGEST_QUIET,
            };
            totals.rest(due, quiet, LONGEST_QUIET);
        }
        let end = End {
            all_messages: totals.messages(),
            all_bytes: totals.bytes(),
            ..end
        };
        let fault = totals.fault();
        self.say(&ToClient::Ended { end, fault })
    }
}

/// For want of something that others have now.
fn declined(error: &io::Error) -> ToClient {
    let wrong = [io::ErrorKind::InvalidInput, io::ErrorKind::PermissionDenied];
    ToClient::Declined {
        why: error.to_string(),
        later: !wrong.contains(&error.kind()),
    }
}
