//! IPFIX over UDP (RFC 7011, section 10.3). Templates are repeated, because delivery is not acknowledged.

use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::message::{Composer, Message};
use crate::sink::{Error, Sink};

/// Fits an Ethernet frame with the longest IP and UDP headers and some encapsulation.
const MAX_MESSAGE: usize = 1400;
/// Templates are sent again after this many messages or this time, whichever comes first.
const REFRESH_MESSAGES: u32 = 256;
const REFRESH: Duration = Duration::from_secs(10);
/// Messages sent without a pause. A collector's socket holds about 90 by default.
const BURST: u32 = 16;
const PAUSE: Duration = Duration::from_millis(1);

/// Sends rows to a collector over UDP.
#[derive(Debug)]
pub struct UdpExporter {
    socket: UdpSocket,
    collector: String,
    composer: Composer,
    sequence: u32,
    /// The number of messages since the templates were last sent, and the time of that.
    since: (u32, Instant),
    burst: u32,
    /// The number of data records in the last message.
    last_records: u32,
    lost: u64,
}

impl UdpExporter {
    /// Sends to a collector at `HOST:PORT`.
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

    /// Sends a message. The kernel reports an undelivered message as an error of the next send.
    fn send(&mut self, mut message: Message) {
        self.pace();
        let bytes = message.stamped(self.sequence);
        let mut sent = self.socket.send(bytes);
        if matches!(&sent, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
            self.lost += u64::from(std::mem::take(&mut self.last_records));
            sent = self.socket.send(bytes);
        }
        self.since.0 += 1;
        // Lost records count as well, so that the collector detects the gap.
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
        // A pending error refers to the last message.
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
