//! The parameters of a test. Both ends check them, because neither knows what the other is.

use std::time::Duration;

use datapath::{Classify, ErrorClass};
use serde::{Deserialize, Serialize};

use crate::test::{ETHERNET_PAYLOAD, MAX_FLOWS, Test};

const MAX_DURATION: Duration = Duration::from_hours(24);
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
    /// Transactions or datagrams a second, all flows together, at fixed times (open loop); none: each
    /// follows as soon as it can (closed loop).
    pub rate: Option<f64>,
    pub direction: Direction,
    /// The size of socket buffers at both ends, in bytes; none: the kernel's default.
    pub socket_buffer: Option<u32>,
    /// How long a read at either end polls before it sleeps, in microseconds; none: the kernel's own
    /// setting, usually 0.
    pub busy_poll_us: Option<u32>,
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
    #[error("{test} goes as fast as it can: it takes no rate")]
    NoRate { test: Test },
    #[error("{test} has no direction: it goes both ways")]
    NoDirection { test: Test },
    #[error("{test} has one flow")]
    OneFlow { test: Test },
    #[error("a read polls for at most {MAX_POLL_US} us, and not at all in {test}")]
    BusyPoll { test: Test },
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
            request: 1,
            response: 1,
            message: test.default_message().unwrap_or(ETHERNET_PAYLOAD),
            rate: test.default_rate().map(f64::from),
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
        let polls = |us| test.can_busy_poll() && (1..=MAX_POLL_US).contains(&us);
        if self.busy_poll_us.is_some_and(|us| !polls(us)) {
            return Err(Invalid::BusyPoll { test });
        }
        if self.direction == Direction::Down && !test.streams() {
            return Err(Invalid::NoDirection { test });
        }
        Ok(())
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
        assert_eq!(refused(TcpRr, |spec| spec.flows = 257), Invalid::Flows);
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
            refused(TcpStream, |spec| spec.rate = Some(1.0)),
            Invalid::NoRate { test: TcpStream }
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
