//! Keeps a copy of the log in a stream. The copy's last record determines where to begin. What the
//! stream delivers again is ignored, and nothing is accepted after a gap.

use std::ops::Range;
use std::time::{Duration, Instant};

use nats::{Delivery, OrderedConsumer, StoredMessage};

use super::message::{Content, Message, Place};
use super::session::{self, Servers, Session};
use super::{Backoff, Error, ForeignMessages, Options, hexadecimal};
use crate::codec;
use crate::log::Beginning;
use crate::record::{Entry, Record};
use crate::ship::{CopyState, Sink};

/// How many times a missing record is searched for.
const ATTEMPTS: u32 = 3;
/// Received records are on the disk after this time, even if more keep arriving.
const SYNC: Duration = Duration::from_millis(500);

/// The progress of receiving.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The copy has all records up to this one.
    pub number: u64,
    /// The last epoch of the copy.
    pub epoch: u64,
    pub messages: u64,
    /// Records that the copy had already.
    pub duplicates: u64,
    /// Messages of the stream that were not received yet.
    pub pending: u64,
    pub foreign: ForeignMessages,
    /// How many times the stream was searched again after an error.
    pub retries: u64,
    /// The server that is connected.
    pub server: Option<String>,
    /// The reason for waiting, if nothing can be received.
    pub waiting: Option<String>,
}

#[derive(Debug)]
pub struct Receiver {
    options: Options,
    sink: Sink,
    session: Option<Session>,
    servers: Servers,
    consumer: Option<OrderedConsumer>,
    /// The bytes of a record that arrives in parts.
    part: Vec<u8>,
    /// Messages up to this one were examined. They are not counted again.
    looked_at: u64,
    /// The number of gaps met at one position.
    gaps: u32,
    /// Since when there is something to sync.
    unsynced: Option<Instant>,
    patience: Backoff,
    progress: Progress,
}

impl Receiver {
    /// Creates a receiver without contacting a server.
    pub fn new(sink: Sink, options: Options) -> Self {
        Self {
            options,
            sink,
            session: None,
            servers: Servers::default(),
            consumer: None,
            part: Vec::new(),
            looked_at: 0,
            gaps: 0,
            unsynced: None,
            patience: Backoff::new(),
            progress: Progress::default(),
        }
    }

    /// Receives the available messages, or waits at most this long for one. Everything received
    /// earlier is on the disk before it waits. It retries temporary errors without limit, and
    /// reports them in [`Progress::waiting`].
    ///
    /// # Errors
    /// [`Error`] for errors that do not pass by themselves.
    pub fn step(&mut self, wait: Duration) -> Result<Progress, Error> {
        let left = self.patience.remaining();
        if !left.is_zero() {
            self.sync()?;
            std::thread::sleep(left.min(wait));
        } else if let Err(error) = self.work(wait) {
            self.recover(error)?;
        }
        self.reached();
        self.progress.server = self
            .session
            .as_ref()
            .map(|session| session.client.server().to_owned());
        Ok(self.progress.clone())
    }

    /// The term of the copy's last record, or zero if there is none.
    pub fn term(&self) -> u64 {
        self.sink.held().map_or(0, |held| held.term)
    }

    /// Removes the contents of the copy, which then begins with the start of the stream.
    ///
    /// # Errors
    /// [`Error::Log`]
    pub fn clear(&mut self) -> Result<(), Error> {
        self.consumer = None;
        self.unsynced = None;
        self.part.clear();
        self.gaps = 0;
        self.sink.clear()?;
        self.reached();
        Ok(())
    }

    /// Returns when everything received survives a power failure.
    ///
    /// # Errors
    /// [`Error::Log`]
    pub fn finish(mut self) -> Result<Progress, Error> {
        self.sink.sync()?;
        Ok(self.progress)
    }

    fn reached(&mut self) {
        let held = self.sink.held();
        self.progress.number = held.map_or(0, |held| held.number);
        self.progress.epoch = held.map_or(0, |held| held.epoch);
    }

    fn recover(&mut self, error: Error) -> Result<(), Error> {
        if !error.passes() {
            // The whole records before it stay.
            self.sync()?;
            return Err(error);
        }
        tracing::debug!("{error}");
        self.servers.leave(&mut self.session, &error);
        self.consumer = None;
        self.progress.waiting = Some(error.to_string());
        self.progress.retries += 1;
        self.patience.failed();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        if self.unsynced.take().is_some() {
            self.sink.sync()?;
        }
        Ok(())
    }

    fn work(&mut self, wait: Duration) -> Result<(), Error> {
        if self.session.is_none() {
            self.session = Some(Session::open(&self.options, &mut self.servers)?);
            self.consumer = None;
        }
        if self.consumer.is_none() {
            self.subscribe()?;
        }
        let Some(mut message) = self.next(Duration::ZERO)? else {
            self.sync()?;
            if let Some(message) = self.next(wait)? {
                return self.deliver(message);
            }
            return self.listening();
        };
        loop {
            self.deliver(message)?;
            if self.unsynced.is_some_and(|since| since.elapsed() > SYNC) {
                self.sync()?;
                return Ok(());
            }
            match self.next(Duration::ZERO)? {
                Some(next) => message = next,
                None => return Ok(()),
            }
        }
    }

    fn next(&mut self, wait: Duration) -> Result<Option<nats::Message>, Error> {
        match &mut self.session {
            Some(session) => Ok(session.client.next(wait)?),
            None => Ok(None),
        }
    }

    /// # Errors
    /// [`nats::Error::Timeout`] if the consumer has gone quiet, because its server may be dead.
    fn listening(&mut self) -> Result<(), Error> {
        match &self.consumer {
            Some(consumer) if consumer.is_lost() => {
                Err(nats::Error::Timeout(self.options.stream.clone()).into())
            }
            _ => Ok(()),
        }
    }

    fn subscribe(&mut self) -> Result<(), Error> {
        self.part.clear();
        let Some(from) = self.find()? else {
            let what = format!("stream {}, which is not there", self.options.stream);
            return Err(nats::Error::NoResponders(what).into());
        };
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        let (api, client) = (&session.api, &mut session.client);
        self.consumer = Some(api.consume(client, &self.options.stream, from)?);
        self.progress.waiting = None;
        Ok(())
    }

    /// The sequence number of the message that has the beginning of the copy's last record, or of
    /// the first message for an empty copy. `None` if there is no stream.
    fn find(&mut self) -> Result<Option<u64>, Error> {
        let (Some(session), options) = (&mut self.session, &self.options) else {
            return Ok(None);
        };
        let Some(stream) = session.stream(options)? else {
            return Ok(None);
        };
        let behind = stream.last + 1;
        self.looked_at = self.looked_at.min(stream.last);
        if stream.messages == 0 {
            return Ok(Some(behind));
        }
        let held = self.sink.held();
        let Some((first, message)) = session.message(options, stream.first)? else {
            return Ok(Some(stream.first));
        };
        begins(&message, held.as_ref(), options)?;
        let Some(held) = held else {
            return Ok(Some(first.sequence));
        };
        let all = first.sequence..behind;
        let found = session.search(options, &all, held.number)?;
        if session.message(options, found)?.is_none() {
            self.compare_end(&all)?;
        }
        Ok(Some(found))
    }

    /// Compares the end of a stream that has less than the copy: either its end was lost, or it has
    /// another history.
    ///
    /// # Errors
    /// [`Error::Diverged`]
    fn compare_end(&mut self, all: &Range<u64>) -> Result<(), Error> {
        let (Some(session), options) = (&mut self.session, &self.options) else {
            return Ok(());
        };
        let Some(end) = session.last(options, all)? else {
            return Ok(());
        };
        // Only the first part contains the time of the record.
        let head = session.head(options, all, &end)?;
        self.compare(&head.unwrap_or(end))
    }

    fn deliver(&mut self, message: nats::Message) -> Result<(), Error> {
        let (Some(session), Some(consumer)) = (&mut self.session, &mut self.consumer) else {
            return Ok(());
        };
        match consumer.handle(&mut session.client, message) {
            Delivery::Other => Ok(()),
            Delivery::Foreign => {
                let stream = self.options.stream.clone();
                self.progress.foreign.add(&Error::Stray(stream));
                Ok(())
            }
            Delivery::Gap => {
                let deleted = session.api.delete(&mut session.client, consumer);
                self.consumer = None;
                deleted.map_err(Error::from)
            }
            Delivery::Message { message, pending } => {
                self.progress.pending = pending;
                self.progress.messages += 1;
                self.take(&message)
            }
        }
    }

    fn take(&mut self, stored: &StoredMessage) -> Result<(), Error> {
        let message = match session::open(stored, &self.options) {
            Ok(message) => message,
            Err(error) => return self.pass_over(stored, &error),
        };
        let held = self.sink.held();
        match &held {
            Some(held) => match same_log(&message, held, &self.options) {
                Err(error @ Error::OtherLog { .. }) if self.goes_on_with(held)? => {
                    return self.pass_over(stored, &error);
                }
                same => same?,
            },
            None => begins(&message, None, &self.options)?,
        }
        self.looked_at = self.looked_at.max(stored.sequence);
        let has = held.map_or(message.beginning.first - 1, |held| held.number);
        if message.from.whole > has {
            return self.gap(has + 1);
        }
        if held.is_none() {
            self.sink.begin(&message.beginning)?;
        }
        self.compare(&message)?;
        let Message { from, content, .. } = message;
        match content {
            Content::Records(records) => {
                self.part.clear();
                for record in &records {
                    self.receive(record)?;
                }
                Ok(())
            }
            Content::Part { .. } if from.whole < has => Ok(()),
            Content::Part { total, bytes } => self.join(stored, from, total, &bytes),
        }
    }

    fn pass_over(&mut self, stored: &StoredMessage, error: &Error) -> Result<(), Error> {
        if stored.sequence > self.looked_at {
            self.looked_at = stored.sequence;
            self.progress.foreign.add(error);
        }
        if self.sink.held().is_none() {
            // The key may differ from the publisher's.
            self.progress.waiting = Some(error.to_string());
        }
        Ok(())
    }

    /// Whether the stream still begins with the copy's log. If it does, a message of another log is
    /// foreign.
    fn goes_on_with(&mut self, held: &CopyState) -> Result<bool, Error> {
        let (Some(session), options) = (&mut self.session, &self.options) else {
            return Ok(false);
        };
        match session.stream(options)? {
            Some(stream) => session.begins_with(options, &stream, &held.beginning.id),
            None => Ok(false),
        }
    }

    /// Compares a record that the copy has already: it comes again after a purge, or is from
    /// another history that is behind the copy.
    ///
    /// # Errors
    /// [`Error::Diverged`]
    fn compare(&mut self, message: &Message) -> Result<(), Error> {
        let (Some((number, at_ns)), Some(held)) = (message.last(), self.sink.held()) else {
            return Ok(());
        };
        let Beginning { folded, .. } = message.beginning;
        // Folded records have their own numbers, up to the base's last epoch.
        let others = message.beginning != held.beginning && number < folded;
        if others || number > held.number {
            return Ok(());
        }
        self.same(number, at_ns)
    }

    /// # Errors
    /// [`Error::Diverged`] if the copy's record with this number has another time.
    fn same(&mut self, number: u64, at_ns: u64) -> Result<(), Error> {
        match self.sink.written_at(number)? {
            Some(own) if own != at_ns => Err(Error::Diverged {
                stream: self.options.stream.clone(),
                number,
            }),
            _ => Ok(()),
        }
    }

    /// Joins the parts of the next record.
    fn join(
        &mut self,
        stored: &StoredMessage,
        from: Place,
        total: usize,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if from.part == 0 {
            self.part.clear();
        }
        if from.part < self.part.len() {
            return Ok(());
        }
        if from.part > self.part.len() {
            return self.gap(from.whole + 1);
        }
        self.part.extend(bytes);
        if self.part.len() < total {
            return Ok(());
        }
        let record = codec::decode(&std::mem::take(&mut self.part));
        match record {
            Ok(record) if record.number == from.whole + 1 => self.receive(&record),
            _ => Err(Error::Unsigned {
                stream: self.options.stream.clone(),
                sequence: stored.sequence,
                what: "ends a record that is none",
            }),
        }
    }

    fn receive(&mut self, record: &Record) -> Result<(), Error> {
        let held = self.sink.held();
        if held.is_some_and(|held| held.number == record.number) {
            self.same(record.number, record.at_ns)?;
        }
        if self.sink.receive(record)? {
            self.gaps = 0;
            self.progress.waiting = None;
            self.patience.succeeded();
            if matches!(record.entry, Entry::Epoch { .. }) {
                self.unsynced.get_or_insert_with(Instant::now);
            }
        } else {
            self.progress.duplicates += 1;
        }
        Ok(())
    }

    /// Searches again for the next record, which is missing. The number of attempts is limited.
    fn gap(&mut self, number: u64) -> Result<(), Error> {
        self.gaps += 1;
        self.consumer = None;
        if self.gaps < ATTEMPTS {
            return Err(nats::Error::Timeout(format!("record {number}")).into());
        }
        Err(Error::Missing {
            stream: self.options.stream.clone(),
            number,
        })
    }
}

/// Checks that a copy, or a new one, can continue with a stream whose first message is this.
fn begins(message: &Message, held: Option<&CopyState>, options: &Options) -> Result<(), Error> {
    let begin = Place::behind(message.beginning.first.saturating_sub(1));
    let due = match held {
        Some(held) => {
            same_log(message, held, options)?;
            Place::behind(held.number)
        }
        None => begin,
    };
    if message.from > due {
        return Err(Error::Purged {
            stream: options.stream.clone(),
            number: due.whole + 1,
        });
    }
    Ok(())
}

/// Checks that the message is of the copy's log, and that the numbers mean the same in both.
fn same_log(message: &Message, held: &CopyState, options: &Options) -> Result<(), Error> {
    let Beginning { id, folded, .. } = message.beginning;
    let stream = || options.stream.clone();
    if id != held.beginning.id {
        return Err(Error::OtherLog {
            stream: stream(),
            found: hexadecimal(&id),
            expected: hexadecimal(&held.beginning.id),
        });
    }
    if message.beginning != held.beginning && held.number < folded {
        return Err(Error::Purged {
            stream: stream(),
            number: held.number + 1,
        });
    }
    Ok(())
}
