//! What is measured: a test and its parameters. Both ends check it, for neither knows what the other is.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Sockets, and threads at either end, of one test.
pub const MOST_FLOWS: u16 = 256;
/// Of a request, a response, or what is written to a stream at once, in bytes.
pub const LARGEST_MESSAGE: u32 = 16 << 20;
/// Of a datagram's payload over IPv4 without options, in bytes.
pub const LARGEST_DATAGRAM: u32 = 65_507;
/// Longer than anybody waits for one test.
const LONGEST: Duration = Duration::from_hours(24);
/// Longer than this no answer of a network is looked for, in microseconds.
const LONGEST_POLL_US: u32 = 10_000;
/// Shorter than this a test has no window that could be measured.
const SHORTEST: Duration = Duration::from_millis(10);

/// What the two ends do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// One end writes to a connection, the other reads.
    TcpStream,
    /// One end sends datagrams, the other counts them.
    UdpStream,
    /// A request and a response, over and over, on one connection.
    TcpRr,
    /// A request and a response in a datagram each.
    UdpRr,
    /// A connection for each request.
    TcpCrr,
    /// The highest rate of datagrams of which hardly any is lost.
    UdpRate,
    /// Echo requests, which the other machine's kernel answers.
    Icmp,
}

impl Test {
    pub const ALL: [Self; 7] = [
        Self::TcpStream,
        Self::UdpStream,
        Self::TcpRr,
        Self::UdpRr,
        Self::TcpCrr,
        Self::UdpRate,
        Self::Icmp,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::TcpStream => "tcp_stream",
            Self::UdpStream => "udp_stream",
            Self::TcpRr => "tcp_rr",
            Self::UdpRr => "udp_rr",
            Self::TcpCrr => "tcp_crr",
            Self::UdpRate => "udp_rate",
            Self::Icmp => "icmp",
        }
    }

    /// Bytes go one way, and how many is what is asked.
    pub fn streams(self) -> bool {
        matches!(self, Self::TcpStream | Self::UdpStream | Self::UdpRate)
    }

    /// It sends messages of one size, not requests and responses.
    pub fn has_messages(self) -> bool {
        self.streams() || self == Self::Icmp
    }

    /// Its messages are datagrams.
    pub fn datagrams(self) -> bool {
        matches!(
            self,
            Self::UdpStream | Self::UdpRr | Self::UdpRate | Self::Icmp
        )
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Test {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|test| test.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no test \"{text}\"; there are: {names}")
        })
    }
}

/// Which end sends, in a test that streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client.
    #[default]
    Up,
    /// The server.
    Down,
}

/// Which options were given that only some tests have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    pub reverse: bool,
    pub request: bool,
    pub response: bool,
    pub message: bool,
}

impl Given {
    /// # Errors
    /// [`Invalid::Idle`] for one that means nothing for any of these tests.
    pub fn check(self, tests: &[Test]) -> Result<(), Invalid> {
        let streams = tests.iter().any(|test| test.streams());
        let messages = tests.iter().any(|test| test.has_messages());
        let transactions = tests.iter().any(|test| !test.has_messages());
        let idle = [
            ("--reverse", self.reverse && !streams),
            ("--request", self.request && !transactions),
            ("--response", self.response && !transactions),
            ("--message", self.message && !messages),
        ];
        let found = idle.into_iter().find(|(_, idle)| *idle);
        found.map_or(Ok(()), |(option, _)| Err(Invalid::Idle { option }))
    }
}

/// A test with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub test: Test,
    /// Of the window that is measured, in microseconds.
    pub duration_us: u64,
    /// Before it, in microseconds: connections find their window, caches fill.
    pub warmup_us: u64,
    /// Sockets at once.
    pub flows: u16,
    /// Of a request, in bytes.
    pub request: u32,
    /// Of a response, in bytes.
    pub response: u32,
    /// What is written at once, or the payload of a datagram, in bytes.
    pub message: u32,
    /// Transactions or datagrams a second, all flows together, at times that nothing puts off (open
    /// loop); none: each follows as soon as it can (closed loop).
    pub rate: Option<f64>,
    pub direction: Direction,
    /// Asked of the kernel at both ends, in bytes; none: what the kernel gives.
    pub socket_buffer: Option<u32>,
    /// How long a read at either end looks for packets by itself before it sleeps, in microseconds; none:
    /// as long as the kernel's own setting says, which usually is not at all.
    pub busy_poll_us: Option<u32>,
}

/// Why a test cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    #[error("a test lasts from 10ms to 24h")]
    Duration,
    #[error("there are from 1 to {MOST_FLOWS} flows")]
    Flows,
    #[error("{what} has from 1 to {most} bytes")]
    Size { what: &'static str, most: u32 },
    #[error("a rate is above 0 and at most 1e9 a second")]
    Rate,
    #[error("{test} goes as fast as it can: it takes no rate")]
    NoRate { test: Test },
    #[error("{test} has no direction: it goes both ways")]
    NoDirection { test: Test },
    #[error("icmp has one flow")]
    OneFlow,
    #[error("{option} means nothing for the tests that are to run")]
    Idle { option: &'static str },
    #[error("a read polls for at most {LONGEST_POLL_US} us, and not at all in {test}")]
    BusyPoll { test: Test },
}

impl Spec {
    /// With one-byte transactions, and datagrams that fill a usual Ethernet frame.
    pub fn new(test: Test, duration: Duration) -> Self {
        let message = match test {
            Test::TcpStream => 128 << 10,
            Test::Icmp => 56,
            _ => 1472,
        };
        Self {
            test,
            duration_us: micros(duration),
            warmup_us: micros(duration / 10).min(1_000_000),
            flows: 1,
            request: 1,
            response: 1,
            message,
            rate: (test == Test::Icmp).then_some(100.0),
            direction: Direction::Up,
            socket_buffer: None,
            busy_poll_us: None,
        }
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
        if !(SHORTEST..=LONGEST).contains(&self.duration()) || self.warmup() > LONGEST {
            return Err(Invalid::Duration);
        }
        if !(1..=MOST_FLOWS).contains(&self.flows) {
            return Err(Invalid::Flows);
        }
        if test == Test::Icmp && self.flows != 1 {
            return Err(Invalid::OneFlow);
        }
        let most = match test.datagrams() {
            true => LARGEST_DATAGRAM,
            false => LARGEST_MESSAGE,
        };
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
        if self.rate.is_some() && matches!(test, Test::TcpStream | Test::UdpRate) {
            return Err(Invalid::NoRate { test });
        }
        let polls = 1..=LONGEST_POLL_US;
        let polled = self.busy_poll_us;
        if polled.is_some_and(|us| test == Test::Icmp || !polls.contains(&us)) {
            return Err(Invalid::BusyPoll { test });
        }
        if self.direction == Direction::Down && !test.streams() {
            return Err(Invalid::NoDirection { test });
        }
        Ok(())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_means_nothing_is_told() {
        let all = Given {
            reverse: true,
            request: true,
            response: true,
            message: true,
        };
        let idle = |option| Err(Invalid::Idle { option });
        assert_eq!(all.check(&[Test::TcpRr, Test::TcpStream]), Ok(()));
        assert_eq!(all.check(&[Test::TcpRr]), idle("--reverse"));
        assert_eq!(all.check(&[Test::UdpRate]), idle("--request"));
        let message = Given {
            message: true,
            ..Given::default()
        };
        assert_eq!(message.check(&[Test::TcpCrr]), idle("--message"));
        assert_eq!(message.check(&[Test::Icmp]), Ok(()));
    }

    #[test]
    fn every_test_is_valid_as_it_comes_and_absurd_ones_are_refused() {
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
        assert_eq!(refused(TcpRr, |spec| spec.flows = 257), Invalid::Flows);
        assert_eq!(refused(Icmp, |spec| spec.flows = 2), Invalid::OneFlow);
        let large = |what, most| Invalid::Size { what, most };
        let most = LARGEST_MESSAGE;
        assert_eq!(
            refused(TcpRr, |spec| spec.response = 0),
            large("a response", most)
        );
        assert_eq!(
            refused(TcpCrr, |spec| spec.request = LARGEST_MESSAGE + 1),
            large("a request", most)
        );
        assert_eq!(
            refused(UdpStream, |spec| spec.message = LARGEST_DATAGRAM + 1),
            large("a message", LARGEST_DATAGRAM)
        );
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut spec = Spec::new(UdpRr, second);
            spec.rate = Some(rate);
            assert_eq!(spec.check(), Err(Invalid::Rate));
        }
        assert_eq!(
            refused(TcpStream, |spec| spec.rate = Some(1.0)),
            Invalid::NoRate { test: TcpStream }
        );
        for test in [Icmp, TcpRr] {
            let polls = |spec: &mut Spec| spec.busy_poll_us = Some(LONGEST_POLL_US + 1);
            assert_eq!(refused(test, polls), Invalid::BusyPoll { test });
        }
        assert_eq!(
            refused(TcpRr, |spec| spec.direction = Direction::Down),
            Invalid::NoDirection { test: TcpRr }
        );
    }
}
