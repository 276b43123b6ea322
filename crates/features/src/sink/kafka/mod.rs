//! Kafka: sends a message for each row and keeps it until all in-sync replicas have stored it.
//!
//! Delivery is at least once: unconfirmed messages are sent again. The key of a message is its flow's id, so the
//! rows of a flow are in one partition, in order.

mod link;
mod partition;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;

use super::message::{Message, messages};
use super::{Error, Mode, Sink};
use link::{Fault, Link};

const PORT: u16 = 9092;
/// The interval between attempts to connect.
const RETRY: Duration = Duration::from_millis(250);
/// How long a lossless run waits for its brokers, and any run for the last confirmations. A broker that has just
/// started takes a while until it leads its partitions.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of messages sent at a time.
const WINDOW: usize = 1024;
/// The maximum number of rows that wait for unreachable brokers. A live run loses further rows.
const MAX_QUEUED_ROWS: usize = 16_384;

/// Sends rows to a topic.
pub struct KafkaSink {
    broker: String,
    topic: String,
    mode: Mode,
    link: Option<Link>,
    tried: Instant,
    /// Unconfirmed messages, in order.
    waiting: VecDeque<Message>,
    lost: u64,
}

impl KafkaSink {
    /// Connects to `HOST[:PORT]/TOPIC`: a reachable broker and an existing topic.
    pub fn connect(address: &str, mode: Mode) -> Result<Self, Error> {
        let wrong = || Error::NoTopic(nats::without_secrets(address));
        let (broker, topic) = address.split_once('/').ok_or_else(wrong)?;
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if broker.is_empty()
            || broker.contains('@')
            || topic.is_empty()
            || !topic.chars().all(legal)
        {
            return Err(wrong());
        }
        let mut sink = Self {
            broker: super::dial::with_port(broker, PORT),
            topic: topic.to_owned(),
            mode,
            link: None,
            tried: Instant::now(),
            waiting: VecDeque::new(),
            lost: 0,
        };
        let link = Link::connect(&sink.broker, &sink.topic);
        sink.link = Some(link.map_err(|fault| sink.error(fault))?);
        Ok(sink)
    }

    /// Sends the waiting messages, a window at a time, until none is left or a fault occurs.
    fn work(&mut self) -> Result<(), Fault> {
        while !self.waiting.is_empty() {
            let mut link = match self.link.take() {
                Some(link) => link,
                None => self.dial_again()?,
            };
            let window = self.waiting.len().min(WINDOW);
            let (first, second) = self.waiting.as_slices();
            let sent: Vec<&Message> = first.iter().chain(second).take(window).collect();
            let stored = link.send(&sent);
            let mut confirmed = stored.confirmed.into_iter().chain(std::iter::repeat(false));
            let mut rest: VecDeque<Message> = self.waiting.split_off(window);
            let keep = |_: &Message| !confirmed.next().unwrap_or(false);
            self.waiting.retain(keep);
            self.waiting.append(&mut rest);
            match stored.fault {
                None => self.link = Some(link),
                Some(fault) => {
                    tracing::warn!("{}: {fault}", self.broker);
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    fn dial_again(&mut self) -> Result<Link, Fault> {
        if self.tried.elapsed() < RETRY {
            return Err(Fault::Passing(io::ErrorKind::NotConnected.into()));
        }
        self.tried = Instant::now();
        let link = Link::connect(&self.broker, &self.topic)?;
        tracing::info!("{}: connected again", self.broker);
        Ok(link)
    }

    /// Sends until no message waits, or the delivery timeout expires.
    fn insist(&mut self) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            match self.work() {
                Ok(()) => return Ok(()),
                Err(Fault::Passing(_)) if since.elapsed() < DELIVERY_TIMEOUT => {}
                Err(fault) => {
                    self.lost += u64::try_from(self.waiting.len()).unwrap_or(0);
                    self.waiting.clear();
                    return Err(self.error(fault));
                }
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends without waiting, for a live run. Messages that will never be accepted are lost.
    fn try_work(&mut self) {
        if let Err(Fault::Lasting(_)) = self.work() {
            self.lost += u64::try_from(self.waiting.len()).unwrap_or(0);
            self.waiting.clear();
        }
    }

    fn error(&self, fault: Fault) -> Error {
        let (Fault::Passing(error) | Fault::Lasting(error)) = fault;
        Error::address(&format!("{} {}", self.broker, self.topic))(error)
    }
}

impl Sink for KafkaSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        if self.mode == Mode::Live && self.waiting.len() + batch.num_rows() > MAX_QUEUED_ROWS {
            // The newest rows are lost, because the waiting messages are sent in order.
            self.lost += u64::try_from(batch.num_rows()).unwrap_or(0);
        } else {
            self.waiting.extend(messages(batch)?);
        }
        match self.mode {
            Mode::Live => {
                self.try_work();
                Ok(())
            }
            Mode::Whole => self.insist(),
        }
    }

    fn idle(&mut self) {
        self.try_work();
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.insist()
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink")
            .field("broker", &self.broker)
            .field("topic", &self.topic)
            .field("waiting", &self.waiting.len())
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_topic() {
        for wrong in ["h", "h:9092", "h:9092/", "/t", "h/a b", "h/a/b", "u:p@h/t"] {
            let refused = KafkaSink::connect(wrong, Mode::Whole);
            assert!(matches!(refused, Err(Error::NoTopic(_))), "{wrong}");
        }
    }
}
