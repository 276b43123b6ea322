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

/// How late a flow of the server begins its messages, which the test's counts take when this is dropped.
pub(crate) struct Lateness<'a> {
    counter: Counter<'a>,
    /// The messages of each bucket. Empty before the first, because most flows have no times to keep. A [`Latency`] of
    /// each of a thousand flows would take too much memory.
    ///
    /// [`Latency`]: crate::outcome::Latency
    counts: Vec<u32>,
}

/// The buckets of an octave, as a power of two, and of all octaves up to more than an hour.
const BUCKET_BITS: u32 = 4;
const BUCKETS: usize = 640;

/// The bucket of a time in nanoseconds.
fn bucket(ns: u64) -> usize {
    let shift = ((ns >> BUCKET_BITS) | 1).ilog2();
    let at = u64::from(shift << BUCKET_BITS) + (ns >> shift);
    usize::try_from(at).map_or(BUCKETS - 1, |at| at.min(BUCKETS - 1))
}

/// The longest time of a bucket, in nanoseconds.
fn longest(bucket: usize) -> u64 {
    let at = bucket as u64;
    let shift = (at >> BUCKET_BITS).saturating_sub(1);
    let mantissa = at - (shift << BUCKET_BITS);
    ((mantissa + 1) << shift) - 1
}

impl<'a> Lateness<'a> {
    pub(crate) fn new(counter: Counter<'a>) -> Self {
        Self {
            counter,
            counts: Vec::new(),
        }
    }

    pub(crate) fn record(&mut self, by: Duration) {
        if !self.counter.is_window_open() {
            return;
        }
        self.counts.resize(BUCKETS, 0);
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count = count.saturating_add(1);
        }
    }
}

impl Drop for Lateness<'_> {
    fn drop(&mut self) {
        let some = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        for (bucket, count) in some {
            let by = Duration::from_nanos(longest(bucket));
            self.counter.add_lateness(by, (*count).into());
        }
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::test::Test;

    #[test]
    fn buckets_keep_times_within_a_sixteenth() {
        let mut before = 0;
        for ns in (0..1000).chain((10..42).flat_map(|bit| [(1 << bit) - 1, 1 << bit])) {
            let bucket = bucket(ns);
            assert!((before..BUCKETS).contains(&bucket), "{ns}");
            let over = longest(bucket) - ns;
            assert!(over <= ns / 16, "{ns}: {over}");
            before = bucket;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn lateness_in_window_is_that_of_the_test() {
        let totals = Totals::new(&Spec::new(Test::UdpStream, Duration::from_secs(1)));
        let ms = Duration::from_millis;
        let record = |by| Lateness::new(totals.counter(0)).record(by);
        record(ms(50));
        let window = totals.open_window();
        (0..200).for_each(|_| record(ms(1)));
        record(ms(7));
        let end = totals.complete_end(totals.close_window(&window, 1));
        let p99 = end.late_p99_ns.unwrap();
        assert!((1_000_000..1_070_000).contains(&p99), "{p99}");
    }
}
