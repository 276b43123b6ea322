//! Keeps a stream equal to a log. It is the stream's only writer: each message says which one it
//! follows, so that neither one that was sent again nor another publisher's can come in between. After
//! anything unexpected, the stream's last message says where to go on.

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

/// Messages that may be without an acknowledgement.
const WINDOW: usize = 64;
/// Without one for so long, the stream is asked what it has.
const LATE: Duration = Duration::from_secs(5);
/// Messages that are no part of a log are looked at in search of one that is, at once.
const SEARCH_BATCH: u64 = 4096;
/// For another publisher to say that it is there.
const PRESENCE: Duration = Duration::from_secs(1);
/// The header that says which run of a publisher sent a message.
const RUN: &str = "Lowroad-Publisher";
/// For people who look at the stream; receivers believe the message only.
const LOG: &str = "Lowroad-Log";
const RECORD: &str = "Lowroad-Record";
const INSUFFICIENT_RESOURCES: u64 = 10054;
const NO_PEERS: u64 = 10005;

/// How far it is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The stream has all records up to this one.
    pub number: u64,
    /// Messages that were sent and are not acknowledged.
    pub in_flight: usize,
    /// Whether the log has records that are not acknowledged.
    pub behind: bool,
    pub messages: u64,
    /// Of the messages.
    pub bytes: u64,
    /// Messages that the stream had acknowledged and did not have later: published again.
    pub lost: u64,
    pub foreign: ForeignMessages,
    /// How many times the stream was asked where to go on, after something went wrong.
    pub retries: u64,
    /// The server that we are connected to.
    pub server: Option<String>,
    /// What is waited for, if nothing can be published.
    pub waiting: Option<String>,
}

#[derive(Debug)]
pub struct Publisher {
    folder: PathBuf,
    options: Options,
    settings: Settings,
    /// Differs from every other publisher's.
    run: String,
    /// The log's id, as the header says it.
    log: String,
    watch: Watch,
    session: Option<Session>,
    servers: Servers,
    /// The stream's subject, while we know that the stream goes on from where we are.
    subject: Option<String>,
    /// Whether it was known before.
    established: bool,
    packets: Option<Packets>,
    outgoing: VecDeque<Packet>,
    /// As many of them have been sent.
    sent: usize,
    /// Whether the log had no more when it was last read.
    drained: bool,
    /// What the stream has.
    place: Place,
    /// Of the stream's last message.
    sequence: u64,
    /// Messages at the end of the stream that are no part of a log.
    foreign: Range<u64>,
    /// Tells answers to what was sent before a retry from those after it.
    attempt: u64,
    acknowledged: Instant,
    patience: Backoff,
    progress: Progress,
}

impl Publisher {
    /// Nothing is asked of a server yet.
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

    /// Publishes what the log has, or waits for more of it at most this long. What passes is waited for,
    /// for ever, and said in [`Progress::waiting`].
    ///
    /// # Errors
    /// [`Error`], for what does not pass by itself.
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

    /// Asks the stream where to go on, and makes it if there is none.
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
                // What was opened for it is not gone on with at the next attempt.
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
    /// Why a message is none, if the stream has others alone before we publish to it, or begins with another log. One
    /// that passes after [`SEARCH_BATCH`] messages, behind which the next attempt goes on.
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
            // Without, one that was deleted.
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

    /// The stream's last message may be of another history than the log.
    ///
    /// # Errors
    /// [`Error::Diverged`]
    fn compare(&mut self, last: &Message, all: &Range<u64>) -> Result<(), Error> {
        let (Some(session), Some(packets)) = (&mut self.session, &self.packets) else {
            return Ok(());
        };
        let options = &self.options;
        // A later part may be the same in a record of another time.
        if let Some(head) = session.head(options, all, last)? {
            packets.has(&head, &options.stream)?;
        }
        packets.has(last, &options.stream)
    }

    /// Goes on behind what the stream has: with what was sent and did not arrive, or from the log, which is opened anew
    /// then: whether it was.
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
        // Those that were cut for another server, which takes more.
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

    /// Sends what the window has room for; how many messages that were.
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

    /// Takes what the servers have said; how many messages that were.
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
                // A publisher asks from an inbox; whoever names another subject would use our permissions for it.
                let reply = message.reply.as_deref().unwrap_or_default();
                if reply.starts_with("_INBOX.") {
                    session.client.publish(reply, "", &[], who().as_bytes());
                    session.client.flush()?;
                }
            } else if name == format!("p{}-{}", self.attempt, self.sequence) {
                self.answer(&message)?;
            } else if name.starts_with(&format!("p{}-", self.attempt)) {
                // Out of its order: one before it was not answered.
                return Err(nats::Error::Timeout(self.options.stream.clone()).into());
            }
        }
    }

    /// The answer to the first of the messages in flight.
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

    /// Most refusals pass: there is room again, or we know better where to go on.
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
        // Not enough servers for now.
        Err(nats::Error::JetStream {
            code: NO_PEERS,
            description,
            ..
        }) => return Err(passing(NO_PEERS, description)),
        // 503: no leader for now. All else is about the stream that was asked for.
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

/// Who we are, for another publisher.
fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), host.trim())
}
