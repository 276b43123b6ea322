//! Keeps a stream equal to a log. It is the stream's only writer: each message names its
//! predecessor, so that neither a repeated message nor one of another publisher can come in
//! between. After any unexpected reply, the stream's last message determines where to continue.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nats::StoredMessage;
use serde_json::json;

use super::message::{Message, Place};
use super::packets::{self, Packet, Packets};
use super::session::{self, Servers, Session};
use super::stream::{self, Settings};
use super::{Backoff, Error, ForeignMessages, Options, hexadecimal};
use crate::log::{Beginning, Id};
use crate::ship::Watch;

/// The most messages without an acknowledgement.
const WINDOW: usize = 64;
/// After this time without an acknowledgement, the stream is asked what it has.
const LATE: Duration = Duration::from_secs(5);
/// How many foreign messages are examined at once in search of one that is part of a log.
const SEARCH_BATCH: u64 = 4096;
/// How long to wait for another publisher to answer.
const PRESENCE: Duration = Duration::from_secs(1);
/// The header that identifies the run of the publisher that sent a message.
const RUN: &str = "Lowroad-Publisher";
/// A header for people who inspect the stream. Receivers rely only on the message itself.
const LOG: &str = "Lowroad-Log";
const RECORD: &str = "Lowroad-Record";
const INSUFFICIENT_RESOURCES: u64 = 10054;
const NO_PEERS: u64 = 10005;

/// The progress of publishing.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The stream has all records up to this one.
    pub number: u64,
    /// Messages that were sent and are not acknowledged.
    pub in_flight: usize,
    /// Whether the log has records that are not acknowledged.
    pub behind: bool,
    pub messages: u64,
    /// The bytes of the messages.
    pub bytes: u64,
    /// Messages that were published again because the stream lost them after their acknowledgement.
    pub lost: u64,
    pub foreign: ForeignMessages,
    /// How many times the stream was asked where to continue after an error.
    pub retries: u64,
    /// The server that is connected.
    pub server: Option<String>,
    /// The reason for waiting, if nothing can be published.
    pub waiting: Option<String>,
}

#[derive(Debug)]
pub struct Publisher {
    folder: PathBuf,
    options: Options,
    settings: Settings,
    /// A value that differs from every other publisher's.
    run: String,
    /// The log's id as it is in the header.
    log: String,
    watch: Watch,
    session: Option<Session>,
    servers: Servers,
    /// The stream's subject, while the stream is known to continue from our position.
    subject: Option<String>,
    /// Whether the subject was known before.
    established: bool,
    packets: Option<Packets>,
    outgoing: VecDeque<Packet>,
    /// The number of messages sent.
    sent: usize,
    /// Whether the last read reached the end of the log.
    drained: bool,
    /// The position up to which the stream has the log.
    place: Place,
    /// The sequence number of the stream's last message.
    sequence: u64,
    /// Messages at the end of the stream that are not part of a log.
    foreign: Range<u64>,
    /// Distinguishes answers to messages from before and after a retry.
    attempt: u64,
    acknowledged: Instant,
    patience: Backoff,
    progress: Progress,
}

impl Publisher {
    /// Creates a publisher without contacting a server.
    ///
    /// # Errors
    /// [`Error::Log`] if there is no such folder; [`Error::Wait`].
    pub fn new(folder: &Path, options: Options, settings: Settings) -> Result<Self, Error> {
        packets::beginning(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            options,
            settings,
            run: format!("{:016x}", fastrand::u64(..)),
            log: String::new(),
            watch: Watch::new(folder).map_err(Error::Wait)?,
            session: None,
            servers: Servers::default(),
            subject: None,
            established: false,
            packets: None,
            outgoing: VecDeque::new(),
            sent: 0,
            drained: false,
            place: Place::behind(0),
            sequence: 0,
            foreign: 0..0,
            attempt: 0,
            acknowledged: Instant::now(),
            patience: Backoff::new(),
            progress: Progress::default(),
        })
    }

    /// Publishes the next records of the log, or waits at most this long for more. It retries
    /// temporary errors without limit, and reports them in [`Progress::waiting`].
    ///
    /// # Errors
    /// [`Error`] for errors that do not pass by themselves.
    pub fn step(&mut self, wait: Duration) -> Result<Progress, Error> {
        let left = self.patience.remaining();
        if !left.is_zero() {
            std::thread::sleep(left.min(wait));
        } else if let Err(error) = self.work(wait) {
            self.recover(error)?;
        }
        self.progress.number = self.place.whole;
        self.progress.in_flight = self.sent;
        let known = self.subject.is_some() && self.drained;
        self.progress.behind = !known || !self.outgoing.is_empty();
        self.progress.server = self
            .session
            .as_ref()
            .map(|session| session.client.server().to_owned());
        Ok(self.progress.clone())
    }

    fn recover(&mut self, error: Error) -> Result<(), Error> {
        if !error.passes() {
            return Err(error);
        }
        tracing::debug!("{error}");
        self.servers.leave(&mut self.session, &error);
        self.subject = None;
        self.progress.waiting = Some(error.to_string());
        self.progress.retries += u64::from(self.established);
        self.patience.failed();
        Ok(())
    }

    fn work(&mut self, wait: Duration) -> Result<(), Error> {
        self.connect()?;
        let Some(subject) = self.subject.clone() else {
            return self.resume(wait);
        };
        let sent = self.publish(&subject)?;
        let answered = self.answers()?;
        if sent == 0 && answered == 0 {
            if self.sent == 0 {
                self.patience.succeeded();
                self.progress.waiting = None;
            }
            if let Some(session) = &self.session {
                session.wait(self.watch.as_fd(), wait)?;
            }
            self.watch.drain().map_err(Error::Wait)?;
        }
        if self.sent > 0 && self.acknowledged.elapsed() > LATE {
            return Err(nats::Error::Timeout(subject).into());
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), Error> {
        if self.session.is_some() {
            return Ok(());
        }
        let mut session = Session::open(&self.options, &mut self.servers)?;
        let presence = stream::presence(&self.options.stream);
        match session.client.request(&presence, b"", PRESENCE) {
            Ok(answer) => {
                return Err(Error::Taken {
                    stream: self.options.stream.clone(),
                    who: String::from_utf8_lossy(&answer.body).into_owned(),
                });
            }
            Err(nats::Error::NoResponders(_) | nats::Error::Timeout(_)) => {}
            Err(error) => return Err(error.into()),
        }
        session.client.subscribe(&presence)?;
        self.session = Some(session);
        Ok(())
    }

    /// Asks the stream where to continue, and creates the stream if there is none.
    fn resume(&mut self, wait: Duration) -> Result<(), Error> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        let Some(beginning) = packets::beginning(&self.folder)? else {
            self.progress.waiting = Some("the log is empty".to_owned());
            return self.watch.wait(wait).map_err(Error::Wait);
        };
        self.log = hexadecimal(&beginning.id);
        let (options, settings) = (&self.options, &self.settings);
        let stream = match session.stream(options)? {
            Some(stream) => stream,
            None => {
                self.foreign = 0..0;
                create(session, options, settings)?
            }
        };
        let most = session.client.max_payload();
        if most < packets::MIN_PAYLOAD {
            let least = packets::MIN_PAYLOAD;
            let what = format!(
                "max_payload of its server, {most}, is too small; set it to {least} or more"
            );
            return Err(settings_of(options, what));
        }
        let check = settings.check(&stream.config);
        check.map_err(|what| settings_of(options, what))?;
        let subject = stream::published(&stream.config).unwrap_or_default();
        self.subject = None;
        self.attempt += 1;
        let last = self.last(&stream, &beginning.id)?;
        let options = &self.options;
        let (begun, place) = match &last {
            None => (beginning, Place::behind(beginning.first - 1)),
            Some((stored, message)) => {
                let ours = stored.header(RUN) == Some(&self.run);
                let own = ours || !self.established || stored.sequence <= self.sequence;
                if !own {
                    let stream = options.stream.clone();
                    return Err(Error::Fenced { stream });
                }
                (message.beginning, message.to)
            }
        };
        self.sequence = stream.last;
        let opened = self.align(begun, place, most)?;
        if let Some((stored, message)) = &last
            && (opened || stored.header(RUN) != Some(&self.run))
        {
            let compared = self.compare(message, &(stream.first..stream.last + 1));
            if compared.is_err() {
                // The next attempt opens the log again.
                self.packets = None;
            }
            compared?;
        }
        self.subject = Some(subject.to_owned());
        self.established = true;
        self.acknowledged = Instant::now();
        Ok(())
    }

    /// The stream's last message that is part of the log.
    ///
    /// # Errors
    /// Why a message is not valid, if the stream has only others before we publish to it, or begins
    /// with another log. A temporary error after [`SEARCH_BATCH`] messages; the next attempt
    /// continues after them.
    fn last(
        &mut self,
        stream: &nats::Stream,
        log: &Id,
    ) -> Result<Option<(StoredMessage, Message)>, Error> {
        let (Some(session), options) = (&mut self.session, &self.options) else {
            return Ok(None);
        };
        if stream.messages == 0 {
            return Ok(None);
        }
        let (known, end) = (self.foreign.clone(), stream.last + 1);
        let mut other = None;
        let mut looked_at = 0;
        let mut at = end;
        while at > stream.first {
            if known.contains(&(at - 1)) && known.end <= end {
                at = known.start;
                continue;
            }
            self.foreign = at..end;
            if looked_at == SEARCH_BATCH {
                let count = end - at;
                return Err(passing(
                    0,
                    format!("the last {count} messages are no part of a log"),
                ));
            }
            looked_at += 1;
            at -= 1;
            let stored = session.stored(options, at)?;
            // A missing message was deleted.
            let Some(stored) = stored.filter(|stored| stored.sequence == at) else {
                continue;
            };
            let error = match session::open(&stored, options) {
                Ok(message) if message.beginning.id == *log => return Ok(Some((stored, message))),
                Ok(message) => {
                    let error = Error::OtherLog {
                        stream: options.stream.clone(),
                        found: hexadecimal(&message.beginning.id),
                        expected: self.log.clone(),
                    };
                    match session.begins_with(options, stream, log)? {
                        true => error,
                        false => return Err(error),
                    }
                }
                Err(error) => error,
            };
            self.progress.foreign.add(&error);
            other = Some(error);
        }
        self.foreign = at..end;
        match other {
            Some(other) if !self.established => Err(other),
            _ => Ok(None),
        }
    }

    /// Checks that the stream's last message is not of another history than the log.
    ///
    /// # Errors
    /// [`Error::Diverged`]
    fn compare(&mut self, last: &Message, all: &Range<u64>) -> Result<(), Error> {
        let (Some(session), Some(packets)) = (&mut self.session, &self.packets) else {
            return Ok(());
        };
        let options = &self.options;
        // A later part may be equal in a record of another time.
        if let Some(head) = session.head(options, all, last)? {
            packets.has(&head, &options.stream)?;
        }
        packets.has(last, &options.stream)
    }

    /// Continues after what the stream has: with messages that were sent and did not arrive, or
    /// from the log. Returns whether the log was opened again.
    fn align(
        &mut self,
        beginning: Beginning,
        place: Place,
        max_payload: usize,
    ) -> Result<bool, Error> {
        if self.established && place < self.place {
            self.progress.lost += 1;
            let (number, had) = (place.whole, self.place.whole);
            tracing::warn!(
                "the stream has lost records behind {number}, up to {had}: publishing them again"
            );
        }
        while self
            .outgoing
            .front()
            .is_some_and(|packet| packet.to <= place)
        {
            self.outgoing.pop_front();
        }
        self.sent = 0;
        self.place = place;
        let goes_on = match (&self.packets, self.outgoing.front()) {
            (None, _) => false,
            (Some(_), Some(packet)) => packet.from == place,
            (Some(packets), None) => packets.place() == place,
        };
        // Messages may have been cut for another server with a higher limit.
        let fits = |packet: &Packet| packets::fits(&packet.body, max_payload);
        let opens = !goes_on || !self.outgoing.iter().all(fits);
        if opens {
            self.outgoing.clear();
            let key = self.options.key.clone();
            let synced = self.options.synced;
            self.packets = Some(Packets::open(&self.folder, beginning, place, key, synced)?);
        }
        Ok(opens)
    }

    /// Sends the messages that fit into the window, and returns their number.
    fn publish(&mut self, subject: &str) -> Result<usize, Error> {
        let (Some(session), Some(packets)) = (&mut self.session, &mut self.packets) else {
            return Ok(0);
        };
        let before = self.sent;
        self.drained = false;
        while self.sent < WINDOW {
            if self.sent == self.outgoing.len() {
                let packet = packets.next(session.client.max_payload())?;
                self.drained = packet.is_none();
                match packet {
                    Some(packet) => self.outgoing.push_back(packet),
                    None => break,
                }
            }
            let Some(packet) = self.outgoing.get(self.sent) else {
                break;
            };
            let expected = self.sequence + self.sent as u64;
            let (run, number) = (&self.run, packet.to.whole);
            let id = packet.id(run);
            let headers = [
                ("Nats-Msg-Id", id.as_str()),
                ("Nats-Expected-Stream", &self.options.stream),
                ("Nats-Expected-Last-Sequence", &expected.to_string()),
                (RUN, run),
                (LOG, &self.log),
                (RECORD, &number.to_string()),
            ];
            let reply = session
                .client
                .inbox(&format!("p{}-{expected}", self.attempt));
            session
                .client
                .publish(subject, &reply, &headers, &packet.body);
            session.client.flush()?;
            if self.sent == 0 {
                self.acknowledged = Instant::now();
            }
            self.sent += 1;
        }
        Ok(self.sent - before)
    }

    /// Processes the answers of the servers, and returns their number.
    fn answers(&mut self) -> Result<usize, Error> {
        let mut count = 0;
        loop {
            let Some(session) = &mut self.session else {
                return Ok(count);
            };
            let Some(message) = session.client.next(Duration::ZERO)? else {
                return Ok(count);
            };
            count += 1;
            let name = message.subject.rsplit('.').next().unwrap_or_default();
            if message.subject == stream::presence(&self.options.stream) {
                // Presence requests come from an inbox. Answering to another subject would let the
                // sender use our permissions for it.
                let reply = message.reply.as_deref().unwrap_or_default();
                if reply.starts_with("_INBOX.") {
                    session.client.publish(reply, "", &[], who().as_bytes());
                    session.client.flush()?;
                }
            } else if name == format!("p{}-{}", self.attempt, self.sequence) {
                self.answer(&message)?;
            } else if name.starts_with(&format!("p{}-", self.attempt)) {
                // The answer is out of order: an earlier message was not answered.
                return Err(nats::Error::Timeout(self.options.stream.clone()).into());
            }
        }
    }

    /// Processes the answer to the first message in flight.
    fn answer(&mut self, message: &nats::Message) -> Result<(), Error> {
        if message.status() == Some(503) {
            return Err(nats::Error::NoResponders(self.options.stream.clone()).into());
        }
        let unintelligible = || nats::Error::Timeout(self.options.stream.clone());
        match nats::parse_response(&message.body) {
            Ok(said) if said["seq"] == json!(self.sequence + 1) => {}
            Err(Some(nats::Error::JetStream {
                code, description, ..
            })) => return Err(self.refusal(code, description)),
            _ => return Err(unintelligible().into()),
        }
        let Some(packet) = self.outgoing.pop_front() else {
            return Ok(());
        };
        self.sent -= 1;
        self.sequence += 1;
        self.place = packet.to;
        self.acknowledged = Instant::now();
        self.patience.succeeded();
        self.progress.waiting = None;
        self.progress.messages += 1;
        self.progress.bytes += packet.body.len() as u64;
        Ok(())
    }

    /// Most refusals are temporary: space becomes free, or the position is corrected.
    fn refusal(&self, code: u64, description: String) -> Error {
        if code == INSUFFICIENT_RESOURCES {
            let what = "its max_msg_size is too small; set it to 524288 or more".to_owned();
            return settings_of(&self.options, what);
        }
        passing(code, description)
    }
}

fn passing(code: u64, description: String) -> Error {
    nats::Error::JetStream {
        code,
        status: 503,
        description,
    }
    .into()
}

fn create(
    session: &mut Session,
    options: &Options,
    settings: &Settings,
) -> Result<nats::Stream, Error> {
    let what = format!("STREAM.CREATE.{}", options.stream);
    let config = settings.configuration(&options.stream);
    match session.api.request(&mut session.client, &what, &config) {
        Ok(_) => {}
        // Too few servers at the moment.
        Err(nats::Error::JetStream {
            code: NO_PEERS,
            description,
            ..
        }) => return Err(passing(NO_PEERS, description)),
        // 503: no leader at the moment. Any other code concerns the stream itself.
        Err(nats::Error::JetStream {
            status,
            description,
            ..
        }) if status != 503 => {
            let replicas = settings.replicas;
            let what = format!("it cannot be made with {replicas} replicas: {description}");
            return Err(settings_of(options, what));
        }
        Err(error) => return Err(error.into()),
    }
    let made = session.stream(options)?;
    made.ok_or_else(|| nats::Error::NoResponders(options.stream.clone()).into())
}

fn settings_of(options: &Options, what: String) -> Error {
    Error::Settings {
        stream: options.stream.clone(),
        what,
    }
}

/// Identifies this publisher for others.
fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), host.trim())
}
