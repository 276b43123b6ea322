//! A test with both ends: warm-up, window, end.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::{Error, Progress, Session, Watch};
use crate::flow::{Totals, Window, ask, stream};
use crate::message::{COOKIE, Cookie};
use crate::outcome::{End, Outcome, Times, Transfer};
use crate::pace::Pace;
use crate::socket::{self, timed_out};
use crate::spec::{Direction, Spec, Test};

/// How often it is said how far it is, and looked whether something went wrong.
const TICK: Duration = Duration::from_millis(20);
/// A server that does not meet a flow of datagrams within this is not reached by them.
const MEETING: Duration = Duration::from_secs(5);
/// When so long nothing has come, nothing is on the way any more.
const QUIET: Duration = Duration::from_millis(100);
/// The last answers, or bytes, may take so long.
const LAST: Duration = Duration::from_secs(3);
/// Nothing in so long a time is the end.
const STALLED: Duration = Duration::from_secs(10);

pub(super) fn measure(
    session: &mut Session,
    spec: &Spec,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let (to, cookie) = session.begin(spec)?;
    let totals = Totals::default();
    thread::scope(|scope| {
        let cut = totals.cut_later();
        let mut flows = Vec::new();
        for flow in 0..spec.flows {
            let to = to.get(usize::from(flow)).or_else(|| to.first()).copied();
            let to = to.ok_or_else(|| Error::Io(io::ErrorKind::InvalidData.into()))?;
            let flow = Flow {
                number: flow,
                to,
                cookie,
                spec,
                totals: &totals,
            };
            let run = move || {
                let mut clock = ask::Clock::new(flow.totals);
                flow.totals.run(|| {
                    let ended = flow.run(&mut clock);
                    clock.end(&ended);
                    ended
                });
                // However it has ended: what it has timed until then is there.
                clock
            };
            flows.push(thread::Builder::new().spawn_scoped(scope, run)?);
        }
        let mut outcome = drive(session, spec, &totals, watch)?;
        drop(cut);
        let times = times(flows);
        outcome.unsent = times.unsent;
        outcome.unfinished = times.unfinished;
        outcome.late = times.late;
        outcome.latency = (!spec.test.streams()).then_some(times.latency);
        Ok(outcome)
    })
}

/// What all flows came to.
fn times(flows: Vec<ScopedJoinHandle<'_, ask::Clock<'_>>>) -> Times {
    let mut all = Times::default();
    for flow in flows {
        // A thread that panicked has said so.
        if let Ok(clock) = flow.join() {
            all.add(&clock.times());
        }
    }
    all
}

fn drive(
    session: &mut Session,
    spec: &Spec,
    totals: &Totals,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let mut early = gather(session, spec, totals, watch);
    if early.is_none() {
        early = attend(session, spec.warmup(), None, totals, watch);
    }
    let window = totals.mark();
    // If only to hear what went wrong there.
    let marked = session.mark();
    let began = early.is_none();
    if began {
        early = attend(session, spec.duration(), Some(&window), totals, watch);
    }
    let mut near = totals.close(&window, spec.flows);
    // Who sends stops before the last of it is waited for.
    if spec.direction == Direction::Up || !spec.test.streams() {
        totals.stop();
        totals.finish(LAST);
    }
    let far = marked.and_then(|()| session.end(totals.bytes()));
    let (far, fault) = match far {
        Ok((far, fault)) => (Some(far).filter(|_| began), fault),
        Err(lost) => (None, Some(lost.to_string())),
    };
    if fault.is_some() {
        // That is why.
        early = early.filter(|why| *why != stalled());
    }
    if let (Some(far), Direction::Down) = (&far, spec.direction) {
        // Of a connection nothing is lost: what has not come yet is late.
        let quiet = match spec.test.datagrams() {
            true => QUIET,
            false => LAST,
        };
        totals.rest(far.all_bytes, quiet, LAST);
    }
    totals.stop();
    near.all_messages = totals.messages();
    near.all_bytes = totals.bytes();
    Ok(Outcome {
        spec: spec.clone(),
        transfer: far.as_ref().and_then(|far| transfer(spec, &near, far)),
        near,
        far,
        latency: None,
        lost: totals.lost(),
        unsent: 0,
        unfinished: 0,
        late: None,
        ended_early: early.or(fault),
    })
}

fn transfer(spec: &Spec, near: &End, far: &End) -> Option<Transfer> {
    let (sent, received) = match spec.direction {
        Direction::Up => (near, far),
        Direction::Down => (far, near),
    };
    let streams = spec.test.streams();
    streams.then(|| Transfer::of(sent, received, spec.test.datagrams()))
}

/// Waits until each flow has met its other end.
fn gather(session: &Session, spec: &Spec, totals: &Totals, watch: Watch<'_>) -> Option<String> {
    let begun = Instant::now();
    while totals.have_met() < usize::from(spec.flows) {
        let early = attend(session, Duration::ZERO, None, totals, watch);
        if early.is_some() {
            return early;
        }
        if begun.elapsed() > STALLED {
            return Some(format!(
                "the flows have not begun after {} s",
                STALLED.as_secs()
            ));
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Lets it go on for so long, and says why it does not if it ends before.
fn attend(
    session: &Session,
    length: Duration,
    window: Option<&Window>,
    totals: &Totals,
    watch: Watch<'_>,
) -> Option<String> {
    let begun = Instant::now();
    let mut moved = (totals.activity(), begun);
    loop {
        let left = length.saturating_sub(begun.elapsed());
        let progress = Progress {
            measured: window.map(|_| begun.elapsed().min(length)),
            bytes: totals.bytes(),
            messages: totals.messages(),
            step: None,
        };
        // Of a server that has ended, the flows end as well: what they say of it helps nobody.
        let fault = totals.fault();
        if session.is_gone() {
            return Some(format!("{} is gone", session.target));
        }
        if let Some(fault) = fault {
            return Some(fault);
        }
        if watch(&progress) == ControlFlow::Break(()) {
            return Some("stopped".to_owned());
        }
        if left.is_zero() {
            return None;
        }
        // Of a large message over a slow path, pieces as well: it may take longer than nothing may.
        let activity = totals.activity();
        if activity != moved.0 {
            moved = (activity, Instant::now());
        } else if moved.1.elapsed() > STALLED {
            return Some(stalled());
        }
        thread::sleep(left.min(TICK));
    }
}

fn stalled() -> String {
    format!("nothing for {} s", STALLED.as_secs())
}

/// One flow at this end.
#[derive(Clone, Copy)]
struct Flow<'a> {
    number: u16,
    to: SocketAddr,
    cookie: Cookie,
    spec: &'a Spec,
    totals: &'a Totals,
}

impl Flow<'_> {
    fn run(&self, clock: &mut ask::Clock<'_>) -> io::Result<()> {
        match self.spec.test {
            Test::TcpCrr => {
                self.totals.met();
                clock.start(self.spec, self.number);
                ask::connect(self.to, &self.cookie, self.spec, clock)
            }
            Test::TcpRr => {
                let mut stream = self.connect()?;
                clock.start(self.spec, self.number);
                ask::tcp(&mut stream, self.spec, clock)
            }
            Test::UdpRr => {
                let socket = self.meet()?;
                clock.start(self.spec, self.number);
                ask::udp(&socket, self.spec, clock)
            }
            Test::TcpStream => self.tcp_stream(),
            _ => self.udp_stream(),
        }
    }

    fn tcp_stream(&self) -> io::Result<()> {
        let mut stream = self.connect()?;
        if self.spec.direction == Direction::Down {
            return stream::tcp_receive(&mut stream, self.totals);
        }
        stream::tcp_send(&mut stream, self.spec.message, self.totals)?;
        stream.shutdown(Shutdown::Write)
    }

    fn udp_stream(&self) -> io::Result<()> {
        let socket = self.meet()?;
        if self.spec.direction == Direction::Down {
            return stream::udp_receive(&socket, &self.cookie, self.totals);
        }
        let pace = self.spec.rate;
        let pace = pace.map(|rate| Pace::new(rate, self.number, self.spec.flows));
        stream::udp_send(&socket, &self.cookie, self.spec.message, pace, self.totals)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let socket = socket::tcp(self.to.ip(), self.spec)?;
        socket.connect_timeout(&self.to.into(), MEETING)?;
        let mut stream = TcpStream::from(socket);
        self.totals.adopt(&(&stream).into())?;
        stream.write_all(&self.cookie)?;
        let mut back = Cookie::default();
        stream.read_exact(&mut back)?;
        self.totals.met();
        Ok(stream)
    }

    /// Shows the cookie until it comes back: from then on datagrams of any size are the test's.
    fn meet(&self) -> io::Result<UdpSocket> {
        let any = match self.to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = socket::udp((any, 0).into(), self.spec)?;
        socket.connect(self.to)?;
        self.totals.adopt(&(&socket).into())?;
        let begun = Instant::now();
        let mut room = [0; COOKIE];
        while begun.elapsed() < MEETING {
            socket.send(&self.cookie)?;
            match socket.recv(&mut room) {
                Ok(COOKIE) if room == self.cookie => {
                    self.totals.met();
                    return Ok(socket);
                }
                // The cookie that came back is lost: who sends already has seen ours.
                Ok(_) if self.spec.direction == Direction::Down => {
                    self.totals.count(self.spec.message as usize);
                    self.totals.met();
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
    use super::*;

    #[test]
    fn who_sends_already_has_met() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let spec = Spec {
            direction: Direction::Down,
            ..Spec::new(Test::UdpStream, Duration::from_secs(1))
        };
        let totals = Totals::default();
        let flow = Flow {
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
        assert_eq!((totals.have_met(), totals.messages()), (1, 1));
        assert_eq!(totals.bytes(), 1472);
    }
}
