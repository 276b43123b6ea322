//! Flows at the server, whose clients have shown the cookie.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::{Counter, Totals};
use crate::message::Cookie;
use crate::socket::timed_out;
use crate::spec::Spec;

/// A connection may be slow, but not silent for this long.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection, whose client has shown the cookie.
pub(crate) struct ConnectionFlow<'a> {
    pub(crate) number: u16,
    pub(crate) stream: TcpStream,
    pub(crate) spec: &'a Spec,
    pub(crate) counter: Counter<'a>,
}

/// One flow of datagrams, whose client has shown the cookie.
pub(crate) struct DatagramFlow<'a> {
    pub(crate) number: u16,
    /// Connected to the client.
    pub(crate) socket: &'a UdpSocket,
    pub(crate) cookie: &'a Cookie,
    pub(crate) spec: &'a Spec,
    /// The server's limit for what all flows send, in payload bits a second.
    pub(crate) max_bits_per_s: Option<f64>,
    pub(crate) counter: Counter<'a>,
}

/// A connection whose reads and writes end when the test stops. Its socket has short timeouts, so that it checks often.
pub(crate) struct PolledStream<'a> {
    stream: &'a TcpStream,
    totals: &'a Totals,
    /// The deadline of all reads, however slowly bytes arrive.
    until: Option<Instant>,
}

impl<'a> PolledStream<'a> {
    pub(crate) fn new(stream: &'a TcpStream, totals: &'a Totals, until: Option<Instant>) -> Self {
        Self {
            stream,
            totals,
            until,
        }
    }

    fn retry<T>(&self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut silent_since = None;
        loop {
            let over = self.until.is_some_and(|until| Instant::now() > until);
            if over || self.totals.is_stopped() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match act() {
                Err(error) if timed_out(&error) => {
                    let since = *silent_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > SILENCE_TIMEOUT {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }
}

impl Read for PolledStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.retry(|| stream.read(into))
    }
}

impl Write for PolledStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.retry(|| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
