//! IPFIX over UDP (RFC 7011, section 10.3): templates again and again, and nobody says what arrived.

use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::message::{Composer, Message};
use crate::sink::{Error, Sink};

/// What fits an Ethernet frame behind the longest IP and UDP headers, and some encapsulation.
const MAX_MESSAGE: usize = 1400;
/// Templates are sent again after so many messages or so long, whatever comes first.
const REFRESH_MESSAGES: u32 = 256;
const REFRESH: Duration = Duration::from_secs(10);
/// Messages that are sent without a pause: a collector's socket holds about 90 by default.
const BURST: u32 = 16;
const PAUSE: Duration = Duration::from_millis(1);

/// Sends rows to a collector over UDP.
#[derive(Debug)]
pub struct UdpExporter {
    socket: UdpSocket,
    collector: String,
    composer: Composer,
    sequence: u32,
    /// Messages since the templates were sent, and when that was.
    since: (u32, Instant),
    burst: u32,
    /// Data records of the message that was sent last.
    last_records: u32,
    lost: u64,
}

impl UdpExporter {
    /// `collector` is `HOST:PORT`.
    pub fn connect(collector: &str, schema: &Schema, domain: u32) -> Result<Self, Error> {
        let composer = Composer::new(schema, MAX_MESSAGE, domain)?;
        let socket = connect(collector).map_err(Error::address(collector))?;
        Ok(Self {
            socket,
            collector: collector.to_owned(),
            composer,
            sequence: 0,
            since: (0, Instant::now()),
            burst: 0,
            last_records: 0,
            lost: 0,
        })
    }

    fn refresh(&mut self) {
        if self.since.0 < REFRESH_MESSAGES && self.since.1.elapsed() < REFRESH {
            return;
        }
        self.since = (0, Instant::now());
        for message in self.composer.templates_from(0) {
            self.send(message);
        }
    }

    /// Sends a message. That the one before reached nobody is told to whoever sends next.
    fn send(&mut self, mut message: Message) {
        self.pace();
        let bytes = message.stamped(self.sequence);
        let mut sent = self.socket.send(bytes);
        if matches!(&sent, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
            self.lost += u64::from(std::mem::take(&mut self.last_records));
            sent = self.socket.send(bytes);
        }
        self.since.0 += 1;
        // Lost ones are counted too, so that the collector sees the gap.
        self.sequence = self.sequence.wrapping_add(message.records);
        match sent {
            Ok(_) => self.last_records = message.records,
            Err(error) => {
                self.lost += u64::from(message.records);
                self.last_records = 0;
                tracing::debug!("{}: {error}", self.collector);
            }
        }
    }

    fn pace(&mut self) {
        self.burst += 1;
        if self.burst == BURST {
            self.burst = 0;
            thread::sleep(PAUSE);
        }
    }
}

impl Sink for UdpExporter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.refresh();
        for message in self.composer.compose(batch) {
            self.send(message);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        // An answer to the last message that nobody has asked for yet.
        if let Ok(Some(_)) = self.socket.take_error() {
            self.lost += u64::from(std::mem::take(&mut self.last_records));
        }
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

fn connect(collector: &str) -> io::Result<UdpSocket> {
    let mut last = io::Error::other("has no address");
    for address in std::net::ToSocketAddrs::to_socket_addrs(collector)? {
        let any = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        match UdpSocket::bind(any).and_then(|socket| socket.connect(address).map(|()| socket)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
