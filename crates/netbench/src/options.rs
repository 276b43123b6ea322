//! The options that `lowroad netbench run` and `netbench-agent run` have in common, and the tests that they ask for.

use std::time::Duration;

use datapath::{Classify, ErrorClass};

use crate::spec::{Direction, Invalid, Spec, micros};
use crate::test::Test;

/// What is asked of several tests at once. Of a list, each value makes a test of its own.
#[derive(Clone, Debug)]
pub struct Options {
    pub duration: Duration,
    pub warmup: Option<Duration>,
    pub flows: Vec<u16>,
    /// Sizes in bytes; empty: the default.
    pub request: Vec<u64>,
    pub response: Vec<u64>,
    pub message: Vec<u64>,
    /// Messages a second.
    pub rate: Option<f64>,
    pub reverse: bool,
    /// In bytes.
    pub socket_buffer: Option<u64>,
    pub busy_poll: Option<Duration>,
}

/// What is wrong with options.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    #[error("{option} means nothing for the tests that are to run")]
    Unused { option: &'static str },
    #[error("{test}: {cause}")]
    Invalid { test: Test, cause: Invalid },
}

impl Classify for OptionError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Input
    }
}

impl Options {
    /// Every combination of values for each of the tests. An option that a test does not have leaves that test as it
    /// is.
    ///
    /// # Errors
    /// [`OptionError`]: an option that none of the tests has, or a combination that cannot be measured.
    pub fn specs(&self, tests: &[Test]) -> Result<Vec<Spec>, OptionError> {
        self.check_use(tests)?;
        let mut specs = Vec::new();
        for &test in tests {
            let common = self.common(test);
            let messages = test.has_messages();
            for &flows in &self.flows {
                for request in sizes(&self.request, common.request, !messages) {
                    for response in sizes(&self.response, common.response, !messages) {
                        for message in sizes(&self.message, common.message, messages) {
                            let spec = Spec {
                                flows,
                                request,
                                response,
                                message,
                                ..common.clone()
                            };
                            let checked = spec.check();
                            checked.map_err(|cause| OptionError::Invalid { test, cause })?;
                            specs.push(spec);
                        }
                    }
                }
            }
        }
        Ok(specs)
    }

    fn check_use(&self, tests: &[Test]) -> Result<(), OptionError> {
        let streams = tests.iter().any(|test| test.streams());
        let messages = tests.iter().any(|test| test.has_messages());
        let transactions = tests.iter().any(|test| !test.has_messages());
        let unused = [
            ("--reverse", self.reverse && !streams),
            ("--request", !self.request.is_empty() && !transactions),
            ("--response", !self.response.is_empty() && !transactions),
            ("--message", !self.message.is_empty() && !messages),
        ];
        let first = unused.into_iter().find(|(_, unused)| *unused);
        first.map_or(Ok(()), |(option, _)| Err(OptionError::Unused { option }))
    }

    /// What all tests of one kind have in common.
    fn common(&self, test: Test) -> Spec {
        let default = Spec::new(test, self.duration);
        let poll_us = |poll| u32::try_from(micros(poll)).unwrap_or(u32::MAX);
        Spec {
            warmup_us: self.warmup.map_or(default.warmup_us, micros),
            rate: self.rate.or(default.rate),
            direction: match self.reverse && test.streams() {
                true => Direction::Down,
                false => Direction::Up,
            },
            socket_buffer: self.socket_buffer.map(bytes),
            busy_poll_us: self.busy_poll.map(poll_us),
            ..default
        }
    }
}

fn sizes(values: &[u64], default: u32, applies: bool) -> Vec<u32> {
    match applies && !values.is_empty() {
        true => values.iter().copied().map(bytes).collect(),
        false => vec![default],
    }
}

/// [`Spec::check`] refuses what does not fit.
fn bytes(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            duration: Duration::from_secs(1),
            warmup: None,
            flows: vec![1],
            request: Vec::new(),
            response: Vec::new(),
            message: Vec::new(),
            rate: None,
            reverse: false,
            socket_buffer: None,
            busy_poll: None,
        }
    }

    #[test]
    fn option_without_a_test_is_refused() {
        let all = Options {
            reverse: true,
            request: vec![1],
            response: vec![1],
            message: vec![1],
            ..options()
        };
        let unused = |option| Err(OptionError::Unused { option });
        let checked = |options: &Options, tests: &[Test]| options.specs(tests).map(drop);
        assert_eq!(checked(&all, &[Test::TcpRr, Test::TcpStream]), Ok(()));
        assert_eq!(checked(&all, &[Test::TcpRr]), unused("--reverse"));
        assert_eq!(checked(&all, &[Test::UdpRate]), unused("--request"));
        let message = Options {
            message: vec![1],
            ..options()
        };
        assert_eq!(checked(&message, &[Test::TcpCrr]), unused("--message"));
        assert_eq!(checked(&message, &[Test::Icmp]), Ok(()));
    }

    #[test]
    fn lists_make_a_test_for_each_combination() {
        let options = Options {
            flows: vec![1, 2],
            request: vec![10, 20],
            message: vec![30],
            reverse: true,
            ..options()
        };
        let specs = options.specs(&[Test::TcpRr, Test::UdpStream]).unwrap();
        let of = |spec: &Spec| (spec.test, spec.flows, spec.request, spec.message);
        let rr = |flows, request| (Test::TcpRr, flows, request, 1472);
        let stream = |flows| (Test::UdpStream, flows, 1, 30);
        let expected = [
            rr(1, 10),
            rr(1, 20),
            rr(2, 10),
            rr(2, 20),
            stream(1),
            stream(2),
        ];
        assert_eq!(specs.iter().map(of).collect::<Vec<_>>(), expected);
        let down = specs
            .iter()
            .filter(|spec| spec.direction == Direction::Down);
        assert!(
            down.eq(specs.iter().skip(4)),
            "only streams have a direction"
        );
        let large = Options {
            request: vec![u64::MAX],
            ..self::options()
        };
        let refused = large.specs(&[Test::UdpRr]).unwrap_err().to_string();
        assert_eq!(refused, "udp_rr: a request has from 1 to 65507 bytes");
    }
}
