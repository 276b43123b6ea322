//! The options that `lowroad netbench run` and `netbench-agent run` have in common, and the tests that they ask for.

use std::str::FromStr;
use std::time::Duration;

use datapath::{Classify, ErrorClass};
use units::Rate;

use crate::spec::{Direction, Invalid, Spec, micros};
use crate::test::{MAX_FLOWS, Test};

/// The writes a second of a stream with a bit rate, if their size is not given.
const WRITES_PER_S: f64 = 1000.0;
/// A stream with a number of bytes ends by this time, if its duration is not given. By default servers allow no longer
/// test.
const MAX_BYTES_DURATION: Duration = Duration::from_mins(10);
/// The flows of each direction of a load, as of flent's RRUL test.
pub const LOAD_FLOWS: u16 = 4;

/// What is asked of several tests at once. Of a list, each value makes a test of its own.
#[derive(Clone, Debug)]
pub struct Options {
    /// None: [`DEFAULT_DURATION`], or as long as a number of bytes takes.
    pub duration: Option<Duration>,
    pub warmup: Option<Duration>,
    pub flows: Vec<u16>,
    /// Sizes in bytes; empty: the default.
    pub request: Vec<u64>,
    pub response: Vec<u64>,
    pub message: Vec<u64>,
    pub rate: Option<Rate>,
    pub reverse: bool,
    /// Streams go both ways at the same time.
    pub bidirectional: bool,
    /// Latency is measured on the idle path, and under this load.
    pub load: Option<LoadPlan>,
    /// The bytes of a stream.
    pub bytes: Option<u64>,
    pub interval: Option<Duration>,
    pub congestion: Option<String>,
    pub mss: Option<u16>,
    pub pacing: Option<Rate>,
    pub dscp: Option<u8>,
    /// In bytes.
    pub socket_buffer: Option<u64>,
    pub busy_poll: Option<Duration>,
    /// The local port of the first flow, see [`crate::Source`].
    pub client_port: Option<u16>,
    /// The output has the count of each latency.
    pub histogram: bool,
    /// The client has a token.
    pub token: bool,
}

/// The window of a test where none is given.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(10);

impl Default for Options {
    fn default() -> Self {
        Self {
            duration: None,
            warmup: None,
            flows: vec![1],
            request: Vec::new(),
            response: Vec::new(),
            message: Vec::new(),
            rate: None,
            reverse: false,
            bidirectional: false,
            load: None,
            bytes: None,
            interval: None,
            congestion: None,
            mss: None,
            pacing: None,
            dscp: None,
            socket_buffer: None,
            busy_poll: None,
            client_port: None,
            histogram: false,
            token: false,
        }
    }
}

/// A test, and what runs at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub spec: Spec,
    pub bidirectional: bool,
    pub load: Option<LoadStreams>,
}

/// A load that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadPlan {
    pub direction: LoadDirection,
    /// The flows of each direction.
    pub flows: u16,
}

/// Streams that load a path.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadStreams {
    pub direction: LoadDirection,
    /// The streams of each direction. They last for as long as the test that they load.
    pub stream: Spec,
}

/// The directions that a load has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadDirection {
    Up,
    Down,
    Both,
}

impl FromStr for LoadDirection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "up" => Ok(Self::Up),
            "down" => Ok(Self::Down),
            "both" => Ok(Self::Both),
            _ => Err(format!("\"{text}\": a load is up, down or both")),
        }
    }
}

/// What is wrong with options.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    #[error("{option} has no effect on these tests: leave it out, or add a test that uses it")]
    Unused { option: &'static str },
    #[error("{test}: {cause}")]
    Invalid { test: Test, cause: Invalid },
    #[error("{one} and {other} exclude each other")]
    Conflict {
        one: &'static str,
        other: &'static str,
    },
    #[error(
        "{test} takes a rate of messages, as 800pps or 50kpps: its messages have two directions"
    )]
    BitRate { test: Test },
    #[error("pacing takes a bit rate, as 10mbps")]
    Pacing,
    #[error("a load has from 1 to {MAX_FLOWS} flows")]
    LoadFlows,
    #[error("--client-port and the ports of further flows, which follow it, are from 1 to 65535")]
    ClientPort,
}

impl Classify for OptionError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Input
    }
}

impl Options {
    /// Every combination of values for each of the tests, with what runs at the same time. A test without streams takes
    /// the load, one of streams goes both ways.
    ///
    /// # Errors
    /// [`OptionError`]
    pub fn plans(&self, tests: &[Test]) -> Result<Vec<Plan>, OptionError> {
        let flows = self.load.map_or(1, |load| load.flows);
        if !(1..=MAX_FLOWS).contains(&flows) {
            return Err(OptionError::LoadFlows);
        }
        let specs = self.specs(tests)?;
        let load = self.load.map(|load| self.load_streams(load)).transpose()?;
        let plan = |spec: Spec| Plan {
            // A search for a rate would have the other direction follow its steps.
            bidirectional: self.bidirectional && spec.test.streams() && !spec.test.searches(),
            load: load.clone().filter(|_| !spec.test.streams()),
            spec,
        };
        Ok(specs.into_iter().map(plan).collect())
    }

    /// Every combination of values for each of the tests. An option that a test does not have leaves that test as it
    /// is.
    ///
    /// # Errors
    /// [`OptionError`]: an option that none of the tests has, or a combination that cannot be measured.
    pub fn specs(&self, tests: &[Test]) -> Result<Vec<Spec>, OptionError> {
        self.check_use(tests)?;
        let mut specs = Vec::new();
        for &test in tests {
            let common = self.common(test)?;
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
                            specs.push(self.with_rate(spec)?);
                        }
                    }
                }
            }
        }
        Ok(specs)
    }

    /// Adds the rate in messages a second, and checks the spec.
    fn with_rate(&self, mut spec: Spec) -> Result<Spec, OptionError> {
        let test = spec.test;
        match self.rate {
            Some(Rate::Messages(rate)) => spec.rate = Some(rate),
            Some(Rate::Bits(bits)) => {
                if !test.streams() {
                    return Err(OptionError::BitRate { test });
                }
                // One write of the default size may hold what a slow stream carries in a second.
                if !test.datagrams() && self.message.is_empty() {
                    let share = (bits / 8.0 / WRITES_PER_S).ceil().max(1.0);
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "positive, and a float that is too large saturates"
                    )]
                    let share = share as u32;
                    spec.message = spec.message.min(share);
                }
                spec.bits_per_s = Some(bits);
                spec.rate = Some(bits / 8.0 / f64::from(spec.message));
            }
            None => {}
        }
        let checked = spec.check();
        checked.map_err(|cause| OptionError::Invalid { test, cause })?;
        Ok(spec)
    }

    /// The streams of a load, with the options of connections.
    fn load_streams(&self, load: LoadPlan) -> Result<LoadStreams, OptionError> {
        let test = Test::TcpStream;
        let stream = Spec {
            flows: load.flows,
            warmup_us: 0,
            dscp: self.dscp,
            congestion: self.congestion.clone(),
            mss: self.mss,
            pacing_bits_per_s: self.pacing.and_then(bits),
            ..Spec::new(test, DEFAULT_DURATION)
        };
        let checked = stream.check();
        checked.map_err(|cause| OptionError::Invalid { test, cause })?;
        let direction = load.direction;
        Ok(LoadStreams { direction, stream })
    }

    fn check_use(&self, tests: &[Test]) -> Result<(), OptionError> {
        let streams = tests.iter().any(|test| test.streams());
        let messages = tests.iter().any(|test| test.has_messages());
        let transactions = tests.iter().any(|test| !test.has_messages());
        let transacts = tests.iter().any(|test| !test.streams());
        // The streams of a load are connections to the server.
        let loads = self.load.is_some() && transacts;
        let connections = loads || tests.iter().any(|test| !test.datagrams());
        let server = loads || tests.iter().any(|test| test.needs_server());
        // The steps of a search have no intervals.
        let intervals = tests.iter().any(|test| !test.searches());
        let bytes = tests.iter().any(|test| test.takes_bytes());
        let both = tests.iter().any(|test| test.streams() && !test.searches());
        let unused = [
            ("--reverse", self.reverse && !streams),
            ("--bidir", self.bidirectional && !both),
            ("--load", self.load.is_some() && !transacts),
            ("--bytes", self.bytes.is_some() && !bytes),
            ("--congestion", self.congestion.is_some() && !connections),
            ("--mss", self.mss.is_some() && !connections),
            ("--pacing", self.pacing.is_some() && !connections),
            ("--request", !self.request.is_empty() && !transactions),
            ("--response", !self.response.is_empty() && !transactions),
            ("--message", !self.message.is_empty() && !messages),
            ("--interval", self.interval.is_some() && !intervals),
            ("--client-port", self.client_port.is_some() && !server),
            ("--histogram", self.histogram && !transacts),
            ("--token-file", self.token && !server),
        ];
        self.check_client_port()?;
        if self.reverse && self.bidirectional {
            let (one, other) = ("--reverse", "--bidir");
            return Err(OptionError::Conflict { one, other });
        }
        if matches!(self.pacing, Some(Rate::Messages(_))) {
            return Err(OptionError::Pacing);
        }
        let first = unused.into_iter().find(|(_, unused)| *unused);
        first.map_or(Ok(()), |(option, _)| Err(OptionError::Unused { option }))
    }

    /// Flows of a test and of its load begin at the same port.
    fn check_client_port(&self) -> Result<(), OptionError> {
        let flows = self.flows.iter().copied();
        let most = flows.chain(self.load.map(|load| load.flows)).max();
        let last = |port: u16| port.checked_add(most.unwrap_or(1).saturating_sub(1));
        match self.client_port {
            Some(port) if port == 0 || last(port).is_none() => Err(OptionError::ClientPort),
            _ => Ok(()),
        }
    }

    /// What all tests of one kind have in common.
    fn common(&self, test: Test) -> Result<Spec, OptionError> {
        let bytes_limit = self.bytes.filter(|_| test.takes_bytes());
        let usual = match bytes_limit {
            Some(_) => MAX_BYTES_DURATION,
            None => DEFAULT_DURATION,
        };
        let default = Spec::new(test, self.duration.unwrap_or(usual));
        let poll_us = |poll| u32::try_from(micros(poll)).unwrap_or(u32::MAX);
        let connections = !test.datagrams();
        // All bytes count: none is sent before the window.
        let warmup_us = match (self.warmup, bytes_limit) {
            (Some(_), Some(_)) => {
                let (one, other) = ("--warmup", "--bytes");
                return Err(OptionError::Conflict { one, other });
            }
            (None, Some(_)) => 0,
            (warmup, None) => warmup.map_or(default.warmup_us, micros),
        };
        Ok(Spec {
            warmup_us,
            direction: match self.reverse && test.streams() {
                true => Direction::Down,
                false => Direction::Up,
            },
            fit_message: default.fit_message && self.message.is_empty(),
            socket_buffer: self.socket_buffer.map(bytes),
            busy_poll_us: self.busy_poll.map(poll_us),
            congestion: self.congestion.clone().filter(|_| connections),
            mss: self.mss.filter(|_| connections),
            pacing_bits_per_s: self.pacing.and_then(bits).filter(|_| connections),
            dscp: self.dscp,
            bytes: bytes_limit,
            interval_us: self.interval.map(micros),
            ..default
        })
    }
}

/// The bits a second of a bit rate.
fn bits(rate: Rate) -> Option<u64> {
    match rate {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and a float that is too large saturates"
        )]
        Rate::Bits(bits) => Some(bits as u64),
        Rate::Messages(_) => None,
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
            duration: Some(Duration::from_secs(1)),
            ..Options::default()
        }
    }

    #[test]
    fn bit_rates_become_messages() {
        let rated = |test, rate: &str, message: Vec<u64>| {
            let rate = Some(rate.parse().unwrap());
            let options = Options {
                rate,
                message,
                ..options()
            };
            options.specs(&[test]).map(|mut specs| specs.remove(0))
        };
        let datagrams = rated(Test::UdpStream, "10mbps", vec![1250]).unwrap();
        assert_eq!(datagrams.rate, Some(1000.0));
        // They are as long as the path allows: fewer of them make the same rate.
        let fitted = rated(Test::UdpStream, "10mbps", Vec::new()).unwrap();
        let fitted = fitted.fit(1280, false);
        let bits = fitted.rate.unwrap() * f64::from(fitted.message) * 8.0;
        assert!((bits - 1e7).abs() < 1.0, "{bits}");
        // A connection that carries 10 Mbit/s is not written to nine times a second.
        let stream = rated(Test::TcpStream, "10mbps", Vec::new()).unwrap();
        assert_eq!((stream.message, stream.rate), (1250, Some(1000.0)));
        let half = rated(Test::TcpRr, "0.5pps", Vec::new()).unwrap();
        assert_eq!(half.rate, Some(0.5));
        assert_eq!(
            rated(Test::UdpRr, "10mbps", Vec::new()),
            Err(OptionError::BitRate { test: Test::UdpRr })
        );
    }

    #[test]
    fn bytes_end_a_stream_and_no_other_test() {
        let options = Options {
            bytes: Some(1000),
            ..Options::default()
        };
        let specs = options.specs(&[Test::TcpStream, Test::TcpRr]).unwrap();
        let of = |spec: &Spec| (spec.bytes, spec.warmup_us, spec.duration());
        assert_eq!(of(&specs[0]), (Some(1000), 0, MAX_BYTES_DURATION));
        assert_eq!(of(&specs[1]), (None, 1_000_000, DEFAULT_DURATION));
        let unused = options.specs(&[Test::UdpRate]);
        assert_eq!(unused, Err(OptionError::Unused { option: "--bytes" }));
    }

    #[test]
    fn plans_say_what_runs_at_the_same_time() {
        let options = Options {
            bidirectional: true,
            load: Some(LoadPlan {
                direction: LoadDirection::Both,
                flows: 2,
            }),
            ..options()
        };
        let tests = [Test::TcpStream, Test::UdpRate, Test::UdpRr];
        let plans = options.plans(&tests).unwrap();
        let of = |plan: &Plan| (plan.bidirectional, plan.load.is_some());
        let expected = [(true, false), (false, false), (false, true)];
        assert_eq!(plans.iter().map(of).collect::<Vec<_>>(), expected);
        let both = Options {
            reverse: true,
            ..options
        };
        assert!(matches!(
            both.plans(&tests),
            Err(OptionError::Conflict { .. })
        ));
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
    fn every_option_has_an_effect_or_is_refused() {
        let usual = options;
        let all: [(&str, Options, &[Test]); 7] = [
            (
                "--interval",
                Options {
                    interval: Some(Duration::from_millis(100)),
                    ..usual()
                },
                &[Test::UdpRate],
            ),
            (
                "--client-port",
                Options {
                    client_port: Some(5000),
                    ..usual()
                },
                &[Test::Icmp],
            ),
            (
                "--token-file",
                Options {
                    token: true,
                    ..usual()
                },
                &[Test::Icmp],
            ),
            (
                "--histogram",
                Options {
                    histogram: true,
                    ..usual()
                },
                &[Test::TcpStream, Test::UdpRate],
            ),
            (
                "--mss",
                Options {
                    mss: Some(1000),
                    ..usual()
                },
                &[Test::UdpRr, Test::Icmp],
            ),
            (
                "--load",
                Options {
                    load: Some(LoadPlan {
                        direction: LoadDirection::Up,
                        flows: 1,
                    }),
                    ..usual()
                },
                &[Test::UdpStream],
            ),
            (
                "--bidir",
                Options {
                    bidirectional: true,
                    ..usual()
                },
                &[Test::UdpRr, Test::UdpRate],
            ),
        ];
        for (option, options, without) in all {
            let refused = options.plans(without);
            assert_eq!(refused, Err(OptionError::Unused { option }));
            let with = [without, &[Test::TcpStream, Test::TcpRr]].concat();
            assert!(options.plans(&with).is_ok(), "{option}");
        }
    }

    #[test]
    fn load_has_options_of_connections() {
        let options = Options {
            congestion: Some("reno".to_owned()),
            mss: Some(1000),
            pacing: Some(Rate::Bits(1e6)),
            dscp: Some(46),
            token: true,
            client_port: Some(5000),
            load: Some(LoadPlan {
                direction: LoadDirection::Both,
                flows: 3,
            }),
            ..options()
        };
        let plans = options.plans(&[Test::Icmp]).unwrap();
        let [Plan { spec, load, .. }] = &plans[..] else {
            panic!("one plan");
        };
        assert_eq!((spec.mss, spec.pacing_bits_per_s), (None, None));
        let stream = &load.as_ref().unwrap().stream;
        let of = (stream.mss, stream.pacing_bits_per_s, stream.dscp);
        assert_eq!(of, (Some(1000), Some(1_000_000), Some(46)));
        assert_eq!(
            (stream.congestion.as_deref(), stream.flows),
            (Some("reno"), 3)
        );
    }

    #[test]
    fn client_ports_are_ports() {
        let with = |client_port, flows| {
            let options = Options {
                client_port: Some(client_port),
                flows: vec![1, flows],
                ..options()
            };
            options.specs(&[Test::TcpRr]).map(drop)
        };
        assert_eq!([with(65_535, 1), with(65_534, 2)], [Ok(()), Ok(())]);
        for (port, flows) in [(0, 1), (0, 2), (65_535, 2)] {
            assert_eq!(with(port, flows), Err(OptionError::ClientPort));
        }
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
        let stream = |flows| (Test::UdpStream, flows, 16, 30);
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
