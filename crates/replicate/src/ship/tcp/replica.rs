//! Serves one replica at the source: checks its certificate and its state, and sends the records
//! that it lacks.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::ServerConnection;

use super::Error;
use super::channel::Channel;
use super::identity;
use super::message::{BESIDES, Fork, InvalidMessage, MAX_REQUEST, Message, Reason, Tip, VERSION};
use super::server::{Replica, Shared};
use crate::log;
use crate::record::Term;
use crate::ship::{CopyState, Source};

/// How many bytes may wait for a replica to read them before another record is read from the log.
const MAX_QUEUED: usize = 256 << 10;
/// For how many records the time is kept to compute the lag.
const SAMPLES: usize = 1024;
/// How long a refusal may take to be read.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How long a replica may take to drop records.
const REWIND: Duration = Duration::from_secs(60);

/// The shared state of a replica's thread.
#[derive(Debug)]
pub(super) struct Link {
    address: SocketAddr,
    name: String,
    /// A byte written here wakes the thread.
    waker: UnixStream,
    reached: Mutex<ReplicaPosition>,
}

#[derive(Debug, Default)]
struct ReplicaPosition {
    number: u64,
    epoch: u64,
    /// Numbers and times of sent records. If there are many, only a sample of them.
    sent: VecDeque<(u64, u64)>,
    every: u64,
    skipped: u64,
}

impl Link {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn wake(&self) {
        // If the pipe is full, the thread wakes up anyway.
        let _ = (&self.waker).write(&[0]);
    }

    pub(super) fn status(&self, tip: Tip) -> Replica {
        let reached = self.reached();
        let lag_records = tip.number.saturating_sub(reached.number);
        let oldest = reached
            .sent
            .front()
            .map_or(0, |(_, at_ns)| now_ns().saturating_sub(*at_ns));
        Replica {
            address: self.address,
            name: self.name.clone(),
            number: reached.number,
            epoch: reached.epoch,
            lag_records,
            lag_ms: oldest / 1_000_000,
        }
    }

    fn reached(&self) -> MutexGuard<'_, ReplicaPosition> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplicaPosition {
    fn sent(&mut self, number: u64, at_ns: u64) {
        if self.skipped + 1 < self.every {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        if self.sent.len() >= SAMPLES {
            let mut keep = false;
            self.sent.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = (self.every * 2).max(2);
        }
        self.sent.push_back((number, at_ns));
    }

    fn received(&mut self, number: u64, epoch: u64) {
        (self.number, self.epoch) = (number, epoch);
        while self.sent.front().is_some_and(|(sent, _)| *sent <= number) {
            self.sent.pop_front();
        }
        if self.sent.is_empty() {
            self.every = 1;
        }
    }
}

/// Serves the replica until it disconnects or the server stops. `link` is set once its certificate
/// is accepted.
pub(super) fn serve(
    shared: &Shared,
    stream: TcpStream,
    address: SocketAddr,
    link: &mut Option<Arc<Link>>,
) -> Result<(), Error> {
    let tls = ServerConnection::new(Arc::clone(&shared.tls))?;
    let mut channel = Channel::new(stream, tls.into(), MAX_REQUEST)?;
    let late = Instant::now() + shared.limits.handshake;
    while channel.tls().is_handshaking() {
        turn(shared, &mut channel, None, late)?;
    }
    let (waker, wakes) = UnixStream::pair()?;
    waker.set_nonblocking(true)?;
    wakes.set_nonblocking(true)?;
    let certificate = channel.tls().peer_certificates().and_then(<[_]>::first);
    let here = Arc::new(Link {
        address,
        name: certificate.map(identity::name).unwrap_or_default(),
        waker,
        reached: Mutex::default(),
    });
    *link = Some(Arc::clone(&here));
    let mut replica = Serving {
        shared,
        channel,
        wakes,
        link: here,
    };
    let ended = replica.run();
    replica.last_word(&ended);
    ended
}

struct Serving<'a> {
    shared: &'a Shared,
    channel: Channel,
    wakes: UnixStream,
    link: Arc<Link>,
}

impl Serving<'_> {
    fn run(&mut self) -> Result<(), Error> {
        self.shared.welcome(&self.link)?;
        self.channel.say(&Message::Welcome { version: VERSION });
        let late = Instant::now() + self.shared.limits.handshake;
        let mut held = self.hello(late)?;
        let (mut source, mut rewound) = (None, false);
        let mut beat = Instant::now();
        while !self.shared.stops() {
            if source.is_none() {
                match find(&self.shared.folder, held)? {
                    Continuation::Nothing => {}
                    Continuation::Source(found, beginning, term) => {
                        self.channel.say(&Message::Term(term));
                        self.channel.say(&Message::Begin(beginning));
                        self.channel.say(&Message::Tip(self.shared.tip()));
                        source = Some(*found);
                    }
                    Continuation::Fork(fork) if !rewound => {
                        rewound = true;
                        self.channel.say(&Message::Rewind(fork));
                        held = self.hello(Instant::now() + REWIND)?;
                        continue;
                    }
                    Continuation::Fork(_) => return Err(InvalidMessage::NotDue.into()),
                }
            }
            if let Some(source) = &mut source {
                self.feed(source)?;
            }
            if beat.elapsed() >= self.shared.limits.beat {
                beat = Instant::now();
                self.channel.say(&Message::Tip(self.shared.tip()));
            }
            self.channel.alive(self.shared.limits.silence)?;
            let until = beat + self.shared.limits.beat;
            turn(self.shared, &mut self.channel, Some(&self.wakes), until)?;
            self.hear()?;
        }
        Ok(())
    }

    /// The state of the replica's copy.
    fn hello(&mut self, late: Instant) -> Result<Option<CopyState>, Error> {
        let held = loop {
            match self.channel.hear()? {
                Some(Message::Hello { version, held }) if version == VERSION => break held,
                Some(Message::Hello { version, .. }) => return Err(Error::Version(version)),
                Some(_) => return Err(InvalidMessage::NotDue.into()),
                None => turn(self.shared, &mut self.channel, None, late)?,
            }
        };
        if let Some(held) = held {
            self.link.reached().received(held.number, held.epoch);
        }
        Ok(held)
    }

    fn feed(&mut self, source: &mut Source) -> Result<(), Error> {
        let mut room = MAX_QUEUED.saturating_sub(self.channel.waiting());
        let mut next = Vec::new();
        while room > 0 {
            let Some(record) = source.read()? else {
                break;
            };
            room = room.saturating_sub(BESIDES + record.bytes());
            next.push(record);
        }
        if self.shared.limits.synced && !next.is_empty() {
            source.persist()?;
        }
        for record in next {
            self.link.reached().sent(record.number, record.at_ns);
            self.channel.say(&Message::Record(record));
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<(), Error> {
        while let Some(message) = self.channel.hear()? {
            let Message::Received { number, epoch } = message else {
                return Err(InvalidMessage::NotDue.into());
            };
            self.link.reached().received(number, epoch);
        }
        Ok(())
    }

    /// Sends the reason, if there is one, and waits a little for it to be read.
    fn last_word(&mut self, ended: &Result<(), Error>) {
        let refusal = match ended {
            Err(Error::Refused { reason, text }) => (*reason, text.clone()),
            Err(Error::Version(version)) => (Reason::Version, version.to_string()),
            Err(Error::Log(error)) => (reason_of(error), error.to_string()),
            _ => return self.channel.close(),
        };
        let (reason, text) = refusal;
        self.channel.say(&Message::Refused { reason, text });
        let late = Instant::now() + LAST_WORD;
        while self.channel.waiting() > 0 {
            if turn(self.shared, &mut self.channel, None, late).is_err() {
                return;
            }
        }
        self.channel.close();
    }
}

fn reason_of(error: &log::Error) -> Reason {
    match error {
        log::Error::Compacted { .. } => Reason::Compacted,
        _ => Reason::Source,
    }
}

/// How the log continues after the replica's last record.
enum Continuation {
    /// Nothing has been written to the log.
    Nothing,
    /// The source of the records, the beginning of its log, and its term.
    Source(Box<Source>, log::Beginning, u64),
    /// The log forks before the replica's last record.
    Fork(Fork),
}

fn find(folder: &Path, held: Option<CopyState>) -> Result<Continuation, Error> {
    let terms = log::terms(folder)?;
    let term = terms.last().map_or(Term::FIRST, |last| last.term.number);
    let mut source = Source::open(folder, 0)?;
    let Some(beginning) = source.beginning()? else {
        return Ok(Continuation::Nothing);
    };
    let Some(held) = held else {
        return Ok(Continuation::Source(Box::new(source), beginning, term));
    };
    let refused = |reason, text| Err(Error::Refused { reason, text });
    if held.beginning.id != beginning.id {
        let text = "the ids differ".to_owned();
        return refused(Reason::OtherLog, text);
    }
    if held.term > term {
        tracing::warn!(
            "a replica has term {}, and this log term {term}: another tree was promoted, and this source is not the \
             source any more",
            held.term
        );
        let text = format!("the server has term {term}, the copy {}", held.term);
        return refused(Reason::Term, text);
    }
    let later = terms.iter().find(|later| later.term.number > held.term);
    let fork = later.and_then(|later| Some((later.record?, &later.term)));
    if let Some((record, term)) = fork.filter(|(record, _)| held.number >= *record) {
        return Ok(Continuation::Fork(Fork {
            term: term.number,
            epoch: term.epoch,
            number: record - 1,
            at_ns: term.epoch_ns,
        }));
    }
    // Records before the last folded one are the same only if both logs were folded alike.
    if held.number < beginning.folded && held.beginning != beginning {
        let (last, folded) = (held.number, beginning.folded);
        let text = format!("it ends with record {last}, the source begins with {folded}");
        return refused(Reason::Compacted, text);
    }
    let mut source = Source::of(folder, held.number.saturating_sub(1), &held.beginning)?;
    // The log may have been compacted again meanwhile.
    let beginning = source.beginning()?.unwrap_or(beginning);
    let number = held.number;
    match source.read()? {
        Some(record) if record.at_ns == held.at_ns => {
            Ok(Continuation::Source(Box::new(source), beginning, term))
        }
        Some(_) => refused(Reason::Diverged, format!("record {number} is another")),
        None => refused(Reason::Diverged, format!("there is no record {number}")),
    }
}

/// Lets the channel read and write. Waits for it or a wake-up until the given time at most.
fn turn(
    shared: &Shared,
    channel: &mut Channel,
    wakes: Option<&UnixStream>,
    until: Instant,
) -> Result<(), Error> {
    channel.step()?;
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() && wakes.is_none() {
        return Err(Error::Silent(shared.limits.handshake));
    }
    if shared.stops() {
        return Err(Error::Closed);
    }
    // Without wake-ups, it has to check by itself whether the server stops.
    let at_most = if wakes.is_some() {
        left
    } else {
        left.min(Duration::from_millis(100))
    };
    let timeout = PollTimeout::try_from(at_most + Duration::from_millis(1));
    let timeout = timeout.unwrap_or(PollTimeout::MAX);
    let socket = PollFd::new(channel.as_fd(), channel.interest());
    let polled = match wakes.filter(|_| channel.waiting() < MAX_QUEUED) {
        Some(wakes) => {
            let mut asked = [socket, PollFd::new(wakes.as_fd(), PollFlags::POLLIN)];
            poll(&mut asked, timeout)
        }
        None => poll(&mut [socket], timeout),
    };
    match polled {
        Ok(_) | Err(nix::Error::EINTR) => {}
        Err(error) => return Err(io::Error::from(error).into()),
    }
    if let Some(mut wakes) = wakes {
        let mut room = [0; 64];
        while wakes.read(&mut room).is_ok_and(|count| count == room.len()) {}
    }
    channel.step()?;
    Ok(())
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.map_or(0, |since| since.as_nanos())).unwrap_or(u64::MAX)
}
