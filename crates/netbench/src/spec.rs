//! The parameters of a test. Both ends check them, because neither knows what the other is.

use std::time::Duration;

use datapath::{Classify, ErrorClass};
use serde::{Deserialize, Serialize};

use crate::flow::sequence::MIN_NUMBERED;
use crate::test::{ETHERNET_PAYLOAD, MAX_FLOWS, Test};

/// The longest name of a congestion control (`TCP_CA_NAME_MAX` of linux/tcp.h, less the final zero).
const MAX_CONGESTION_NAME: usize = 15;
/// The smallest and largest segment that Linux takes for `TCP_MAXSEG`.
const MSS: std::ops::RangeInclusive<u16> = 88..=32_767;
const MAX_DSCP: u8 = 63;
/// Packets of up to this size fill a path by default. A loopback takes larger ones, which no network does.
const MAX_DEFAULT_PACKET: u32 = 9_000;
/// An IPv4 or IPv6 header without options, and a UDP header, in bytes.
const IPV4_AND_UDP: u32 = 20 + 8;
const IPV6_AND_UDP: u32 = 40 + 8;

pub(crate) const MAX_DURATION: Duration = Duration::from_hours(24);
/// A shorter test has no window to measure.
const MIN_DURATION: Duration = Duration::from_millis(10);
/// No network takes longer to answer.
const MAX_POLL_US: u32 = 10_000;

/// The end that sends, in a test that streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client.
    #[default]
    Up,
    /// The server.
    Down,
}

/// A test with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub test: Test,
    /// The window that is measured, in microseconds.
    pub duration_us: u64,
    /// The time before it, in microseconds: connections find their window, caches fill.
    pub warmup_us: u64,
    /// Sockets at once.
    pub flows: u16,
    /// The size of a request, in bytes.
    pub request: u32,
    /// The size of a response, in bytes.
    pub response: u32,
    /// What is written at once, or the payload of a datagram, in bytes.
    pub message: u32,
    /// The client chooses the size of datagrams by the path MTU when the test begins, and both ends set DF on them.
    /// Datagrams of a given size are sent in fragments where they have to be.
    pub fit_message: bool,
    /// Messages a second, all flows together, at fixed times (open loop); none: each follows as soon as it can
    /// (closed loop).
    pub rate: Option<f64>,
    /// The rate in bits a second, if it was asked for as that. It stays the same when the size of datagrams changes.
    #[serde(skip)]
    pub bits_per_s: Option<f64>,
    pub direction: Direction,
    /// The size of socket buffers at both ends, in bytes; none: the kernel's default.
    pub socket_buffer: Option<u32>,
    /// How long a read at either end polls before it sleeps, in microseconds; none: the kernel's own
    /// setting, usually 0.
    pub busy_poll_us: Option<u32>,
    /// The congestion control of connections at both ends; none: the kernel's default.
    pub congestion: Option<String>,
    /// The largest segment of connections, in bytes; none: by the path MTU.
    pub mss: Option<u16>,
    /// The rate at which the kernel sends the data of each connection, in bits a second; none: as fast as TCP allows.
    pub pacing_bits_per_s: Option<u64>,
    /// The differentiated services code point of all packets of the test; none: the kernel's default.
    pub dscp: Option<u8>,
    /// The bytes that a stream sends, all flows together, after which it ends; none: as many as it can.
    pub bytes: Option<u64>,
    /// The interval of reports during the test, in microseconds; none: no reports.
    #[serde(skip)]
    pub interval_us: Option<u64>,
}

/// Why a test cannot run with these parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    #[error("a test lasts from 10ms to 24h")]
    Duration,
    #[error("there are from 1 to {MAX_FLOWS} flows")]
    Flows,
    #[error("{what} has from 1 to {most} bytes")]
    Size { what: &'static str, most: u32 },
    #[error("a rate is above 0 and at most 1e9 a second")]
    Rate,
    #[error(
        "{test} at a rate needs requests and responses of {MIN_NUMBERED} B or more: shorter ones have no room for the number that tells answers apart"
    )]
    ShortRequest { test: Test },
    #[error("{test} goes as fast as it can: it takes no rate")]
    NoRate { test: Test },
    #[error("{test} has no direction: it goes both ways")]
    NoDirection { test: Test },
    #[error("{test} has one flow")]
    OneFlow { test: Test },
    #[error("a read polls for at most {MAX_POLL_US} us, and not at all in {test}")]
    BusyPoll { test: Test },
    #[error("{option} needs a test over connections; {test} has none")]
    NoConnection { test: Test, option: &'static str },
    #[error(
        "the name of a congestion control has from 1 to {MAX_CONGESTION_NAME} letters, digits, - or _"
    )]
    Congestion,
    #[error("a segment has from {} to {} bytes", MSS.start(), MSS.end())]
    Mss,
    #[error("a rate of pacing is above 0")]
    Pacing,
    #[error("a code point is from 0 to {MAX_DSCP}")]
    Dscp,
    #[error("{test} takes no number of bytes: only tcp_stream and udp_stream do")]
    NoBytes { test: Test },
    #[error("an interval lasts from 10ms to the duration of the test")]
    Interval,
}

impl Classify for Invalid {
    fn class(&self) -> ErrorClass {
        ErrorClass::Input
    }
}

impl Spec {
    /// With transactions of one byte each way, and the test's own defaults.
    pub fn new(test: Test, duration: Duration) -> Self {
        Self {
            test,
            duration_us: micros(duration),
            warmup_us: micros(duration / 10).min(1_000_000),
            flows: 1,
            request: test.default_transaction(),
            response: test.default_transaction(),
            message: test.default_message().unwrap_or(ETHERNET_PAYLOAD),
            fit_message: test.default_message() == Some(ETHERNET_PAYLOAD),
            rate: test.default_rate().map(f64::from),
            bits_per_s: None,
            direction: Direction::Up,
            socket_buffer: None,
            busy_poll_us: None,
            congestion: None,
            mss: None,
            pacing_bits_per_s: None,
            dscp: None,
            bytes: None,
            interval_us: None,
        }
    }

    /// The spec with datagrams that fill a path of this MTU, if their size is to follow it.
    pub(crate) fn fit(&self, path_mtu: u32, v6: bool) -> Self {
        let mut spec = self.clone();
        if spec.fit_message {
            let packet = path_mtu.min(MAX_DEFAULT_PACKET);
            spec.message = packet.saturating_sub(headers(v6)).max(1);
            if let Some(bits) = spec.bits_per_s {
                spec.rate = Some(bits / 8.0 / f64::from(spec.message));
            }
        }
        spec
    }

    /// The largest packet that carries a datagram of this test, in bytes; none if it has no datagrams.
    pub(crate) fn largest_packet(&self, v6: bool) -> Option<u32> {
        let largest = match self.test.has_messages() {
            true => self.message,
            false => self.request.max(self.response),
        };
        self.test.datagrams().then(|| largest + headers(v6))
    }

    /// The bytes of a sequence number for which both a request and its answer have room.
    pub(crate) fn number_bytes(&self) -> usize {
        self.request.min(self.response).min(8) as usize
    }

    /// Whether the server says when its window is open: the client sends a given number of bytes, and begins then.
    pub(crate) fn confirms_window(&self) -> bool {
        self.bytes.is_some() && self.direction == Direction::Up
    }

    pub fn duration(&self) -> Duration {
        Duration::from_micros(self.duration_us)
    }

    pub fn warmup(&self) -> Duration {
        Duration::from_micros(self.warmup_us)
    }

    /// # Errors
    /// [`Invalid`]
    pub fn check(&self) -> Result<(), Invalid> {
        let test = self.test;
        let lasts = MIN_DURATION..=MAX_DURATION;
        if !lasts.contains(&self.duration()) || self.warmup() > MAX_DURATION {
            return Err(Invalid::Duration);
        }
        if !(1..=MAX_FLOWS).contains(&self.flows) {
            return Err(Invalid::Flows);
        }
        if self.flows > test.max_flows() {
            return Err(Invalid::OneFlow { test });
        }
        let most = test.max_size();
        let sizes = match test.has_messages() {
            true => [("a message", self.message); 2],
            false => [("a request", self.request), ("a response", self.response)],
        };
        for (what, size) in sizes {
            if !(1..=most).contains(&size) {
                return Err(Invalid::Size { what, most });
            }
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e9)) {
            return Err(Invalid::Rate);
        }
        if self.rate.is_some() && !test.takes_rate() {
            return Err(Invalid::NoRate { test });
        }
        let answers = !test.streams() && !test.has_messages() && test.datagrams();
        if answers && self.rate.is_some() && self.number_bytes() < MIN_NUMBERED {
            return Err(Invalid::ShortRequest { test });
        }
        let polls = |us| test.can_busy_poll() && (1..=MAX_POLL_US).contains(&us);
        if self.busy_poll_us.is_some_and(|us| !polls(us)) {
            return Err(Invalid::BusyPoll { test });
        }
        if self.direction == Direction::Down && !test.streams() {
            return Err(Invalid::NoDirection { test });
        }
        if self.bytes.is_some_and(|bytes| bytes == 0)
            || (self.bytes.is_some() && !test.takes_bytes())
        {
            return Err(Invalid::NoBytes { test });
        }
        let interval = micros(MIN_DURATION)..=self.duration_us;
        if self.interval_us.is_some_and(|us| !interval.contains(&us)) {
            return Err(Invalid::Interval);
        }
        self.check_options()
    }

    /// Checks the options of sockets.
    fn check_options(&self) -> Result<(), Invalid> {
        let test = self.test;
        for (option, given) in [
            ("a congestion control", self.congestion.is_some()),
            ("a segment size", self.mss.is_some()),
            ("pacing", self.pacing_bits_per_s.is_some()),
        ] {
            if given && test.datagrams() {
                return Err(Invalid::NoConnection { test, option });
            }
        }
        // The name goes to the kernel of the other end.
        let legal = |name: &String| {
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=MAX_CONGESTION_NAME).contains(&name.len()) && name.bytes().all(letters)
        };
        if self.congestion.as_ref().is_some_and(|name| !legal(name)) {
            return Err(Invalid::Congestion);
        }
        if self.mss.is_some_and(|mss| !MSS.contains(&mss)) {
            return Err(Invalid::Mss);
        }
        if self.pacing_bits_per_s == Some(0) {
            return Err(Invalid::Pacing);
        }
        match self.dscp {
            Some(dscp) if dscp > MAX_DSCP => Err(Invalid::Dscp),
            _ => Ok(()),
        }
    }
}

/// The headers of a packet with a datagram or an echo request, whose ICMP header is as long as that of UDP.
fn headers(v6: bool) -> u32 {
    match v6 {
        true => IPV6_AND_UDP,
        false => IPV4_AND_UDP,
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{MAX_DATAGRAM, MAX_MESSAGE};

    #[test]
    fn datagrams_fill_path_unless_their_size_is_given() {
        let spec = Spec::new(Test::UdpStream, Duration::from_secs(1));
        assert_eq!(spec.fit(1500, false).message, 1472);
        assert_eq!(spec.fit(1500, true).message, 1452);
        assert_eq!(spec.fit(65_536, false).message, 8972);
        let given = Spec {
            message: 1472,
            fit_message: false,
            ..spec
        };
        assert_eq!(given.fit(1280, true).message, 1472);
        assert_eq!(given.largest_packet(true), Some(1520));
        let icmp = Spec::new(Test::Icmp, Duration::from_secs(1));
        assert_eq!(icmp.fit(1500, false).message, 56);
        let stream = Spec::new(Test::TcpStream, Duration::from_secs(1));
        assert_eq!(stream.fit(1500, false).message, 128 << 10);
    }

    #[test]
    fn short_requests_at_a_rate_are_refused() {
        let at = |test, rate, response| {
            let spec = Spec {
                rate,
                response,
                ..Spec::new(test, Duration::from_secs(1))
            };
            spec.check()
        };
        let refused = Err(Invalid::ShortRequest { test: Test::UdpRr });
        assert_eq!(at(Test::UdpRr, Some(1.0), 3), refused);
        assert_eq!(at(Test::UdpRr, Some(1.0), 4), Ok(()));
        // One at a time needs no number, and a connection keeps the order of answers.
        assert_eq!(at(Test::UdpRr, None, 1), Ok(()));
        assert_eq!(at(Test::TcpRr, Some(1.0), 1), Ok(()));
        assert_eq!(at(Test::TcpCrr, Some(1.0), 1), Ok(()));
    }

    #[test]
    fn defaults_are_valid_and_absurd_values_refused() {
        let second = Duration::from_secs(1);
        for test in Test::ALL {
            Spec::new(test, second).check().unwrap();
            assert_eq!(test.name().parse(), Ok(test));
        }
        assert!("tcp-rr".parse::<Test>().is_err());
        let refused = |test, change: fn(&mut Spec)| {
            let mut spec = Spec::new(test, second);
            change(&mut spec);
            spec.check().unwrap_err()
        };
        use Test::*;
        assert_eq!(
            refused(TcpRr, |spec| spec.duration_us = 0),
            Invalid::Duration
        );
        assert_eq!(
            refused(TcpRr, |spec| spec.warmup_us = u64::MAX),
            Invalid::Duration
        );
        assert_eq!(refused(TcpRr, |spec| spec.flows = 0), Invalid::Flows);
        assert_eq!(refused(TcpRr, |spec| spec.flows = 1025), Invalid::Flows);
        assert_eq!(
            refused(Icmp, |spec| spec.flows = 2),
            Invalid::OneFlow { test: Icmp }
        );
        let large = |what, most| Invalid::Size { what, most };
        let most = MAX_MESSAGE;
        assert_eq!(
            refused(TcpRr, |spec| spec.response = 0),
            large("a response", most)
        );
        assert_eq!(
            refused(TcpCrr, |spec| spec.request = MAX_MESSAGE + 1),
            large("a request", most)
        );
        assert_eq!(
            refused(UdpStream, |spec| spec.message = MAX_DATAGRAM + 1),
            large("a message", MAX_DATAGRAM)
        );
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut spec = Spec::new(UdpRr, second);
            spec.rate = Some(rate);
            assert_eq!(spec.check(), Err(Invalid::Rate));
        }
        assert_eq!(
            refused(UdpRate, |spec| spec.rate = Some(1.0)),
            Invalid::NoRate { test: UdpRate }
        );
        let congestion = |spec: &mut Spec| spec.congestion = Some("a b".to_owned());
        assert_eq!(refused(TcpRr, congestion), Invalid::Congestion);
        let option = "pacing";
        assert_eq!(
            refused(UdpRr, |spec| spec.pacing_bits_per_s = Some(1)),
            Invalid::NoConnection {
                test: UdpRr,
                option
            }
        );
        assert_eq!(refused(TcpRr, |spec| spec.mss = Some(87)), Invalid::Mss);
        assert_eq!(refused(TcpRr, |spec| spec.dscp = Some(64)), Invalid::Dscp);
        assert_eq!(
            refused(TcpRr, |spec| spec.bytes = Some(1)),
            Invalid::NoBytes { test: TcpRr }
        );
        assert_eq!(
            refused(TcpRr, |spec| spec.interval_us = Some(2_000_000)),
            Invalid::Interval
        );
        for test in [Icmp, TcpRr] {
            let polls = |spec: &mut Spec| spec.busy_poll_us = Some(MAX_POLL_US + 1);
            assert_eq!(refused(test, polls), Invalid::BusyPoll { test });
        }
        assert_eq!(
            refused(TcpRr, |spec| spec.direction = Direction::Down),
            Invalid::NoDirection { test: TcpRr }
        );
    }
}
