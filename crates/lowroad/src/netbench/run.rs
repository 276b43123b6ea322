//! `lowroad netbench run`: tests against a server, one after the other.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use control::limits;
use control::shutdown::Shutdown;
use control::units::{Pps, Size, Span};
use datapath::Missing;
use netbench::client::{self, Error, Progress, Session};
use netbench::{Direction, Given, Outcome, Spec, Test};

use super::{boxes, shown};
use crate::exit::{self, Failure};

/// How often the line on the terminal changes.
const SHOWN: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct Run {
    /// A server: HOST, HOST:PORT or [ADDRESS]:PORT
    #[arg(value_name = "TARGET")]
    target: String,
    /// tcp_stream, udp_stream, tcp_rr, udp_rr, tcp_crr, udp_rate or icmp, which needs no server
    #[arg(
        long,
        value_name = "TEST,...",
        value_delimiter = ',',
        default_value = "tcp_stream,udp_rate,tcp_rr,udp_rr"
    )]
    test: Vec<Test>,
    /// Of each test, after its warm-up
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    duration: Span,
    /// Before it [default: a tenth of the duration, at most 1s]
    #[arg(long, value_name = "DURATION")]
    warmup: Option<Span>,
    /// Do all tests so often, in turn: the spread of the repeats says what one of them is worth
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// Sockets at once; several values make a test each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    flows: Vec<u16>,
    /// Of a request; several values make a test each [default: 1B]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    request: Vec<Size>,
    /// Of a response; several values make a test each [default: 1B]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    response: Vec<Size>,
    /// What a stream writes at once, or of a datagram; several values make a test each [default: 128KiB
    /// for tcp_stream, 56B for icmp, 1472B]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    message: Vec<Size>,
    /// Transactions or datagrams a second, at fixed times (open loop) [default: as soon as the one before
    /// is done (closed loop); icmp 100pps]
    #[arg(long, value_name = "RATE")]
    rate: Option<Pps>,
    /// Streams go from the server to the client
    #[arg(long)]
    reverse: bool,
    /// Ask for socket buffers of this size at both ends
    #[arg(long, value_name = "SIZE")]
    socket_buffer: Option<Size>,
    /// Reads at both ends look for packets so long before they sleep; needs CAP_NET_ADMIN at both
    #[arg(long, value_name = "DURATION")]
    busy_poll: Option<Span>,
    /// In JSON, say how often each latency was seen
    #[arg(long)]
    histogram: bool,
    /// The server's token: the first line of this file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Run {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        if self.histogram && !json {
            return Err(Failure::Input("--histogram goes with --json".to_owned()));
        }
        limits::raise_descriptors();
        let specs = self.specs()?;
        let token = super::token(self.token_file.as_deref())?;
        let mut session = match specs.iter().all(|spec| spec.test == Test::Icmp) {
            true => None,
            false => Some(Session::open(&self.target, token.as_ref()).map_err(failure)?),
        };
        // Until now there was nothing to keep: a signal has ended it at once.
        let shutdown = Shutdown::install().context("signals")?;
        let mut all = Vec::new();
        // Rounds, not blocks: what changes with time changes all tests alike.
        for _ in 0..self.repeat {
            for spec in &specs {
                let mut line = Line::new(&shutdown, spec);
                let mut watch = |progress: &Progress| line.show(progress);
                let outcome = match &mut session {
                    Some(session) => session.measure(spec, &mut watch),
                    None => client::ping(&self.target, spec, &mut watch),
                };
                line.clear();
                let outcome = outcome.map_err(failure)?;
                exit::print(&match json {
                    true => format!("{}\n", netbench::json::outcome(&outcome, self.histogram)),
                    false => shown::text(&outcome),
                })?;
                let early = outcome.ended_early.clone();
                all.push(outcome);
                if let Some(why) = early {
                    return self.ended(&all, json, &shutdown, &why);
                }
            }
        }
        draw(&all, json)
    }

    /// With what there is: a signal ends it as it was asked to, anything else is a failure.
    fn ended(
        &self,
        all: &[Outcome],
        json: bool,
        shutdown: &Shutdown,
        why: &str,
    ) -> Result<(), Failure> {
        draw(all, json)?;
        match shutdown.requested() {
            true => Ok(()),
            // Some say it themselves.
            false if why.starts_with(&self.target) => Err(Failure::Failed(anyhow!("{why}"))),
            false => Err(Failure::Failed(anyhow!("{}: {why}", self.target))),
        }
    }

    /// Every combination that was asked for.
    fn specs(&self) -> Result<Vec<Spec>, Failure> {
        let given = Given {
            reverse: self.reverse,
            request: !self.request.is_empty(),
            response: !self.response.is_empty(),
            message: !self.message.is_empty(),
        };
        let checked = given.check(&self.test);
        checked.map_err(|idle| Failure::Input(idle.to_string()))?;
        let mut all = Vec::new();
        for &test in &self.test {
            let usual = Spec::new(test, self.duration.0);
            let usual = Spec {
                warmup_us: self.warmup.map_or(usual.warmup_us, micros),
                rate: self.rate.map(|Pps(rate)| rate.into()).or(usual.rate),
                direction: match self.reverse && test.streams() {
                    true => Direction::Down,
                    false => Direction::Up,
                },
                socket_buffer: self.socket_buffer.map(bytes),
                busy_poll_us: self
                    .busy_poll
                    .map(|span| u32::try_from(micros(span)).unwrap_or(u32::MAX)),
                ..usual
            };
            let messages = test.has_messages();
            let sizes = |given: &[Size], usual: u32, applies: bool| -> Vec<u32> {
                match applies && !given.is_empty() {
                    true => given.iter().map(|size| bytes(*size)).collect(),
                    false => vec![usual],
                }
            };
            for &flows in &self.flows {
                for &request in &sizes(&self.request, usual.request, !messages) {
                    for &response in &sizes(&self.response, usual.response, !messages) {
                        for &message in &sizes(&self.message, usual.message, messages) {
                            let spec = Spec {
                                flows,
                                request,
                                response,
                                message,
                                ..usual.clone()
                            };
                            spec.check()
                                .map_err(|error| Failure::Input(format!("{test}: {error}")))?;
                            all.push(spec);
                        }
                    }
                }
            }
        }
        Ok(all)
    }
}

fn draw(all: &[Outcome], json: bool) -> Result<(), Failure> {
    match json {
        true => Ok(()),
        false => exit::print(&boxes::draw(all)),
    }
}

fn micros(Span(duration): Span) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// More than there can be is refused by what checks it.
fn bytes(Size(bytes): Size) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn failure(error: Error) -> Failure {
    match error {
        Error::NoToken(_) => Failure::Input(format!("{error} with --token-file")),
        Error::Missing { what, remedy } => {
            Failure::Missing(vec![(String::new(), Missing::new(what, remedy))])
        }
        wrong if wrong.asked_wrong() => Failure::Input(wrong.to_string()),
        failed => Failure::Failed(failed.into()),
    }
}

/// The line on a terminal, and the request to end.
struct Line<'a> {
    shutdown: &'a Shutdown,
    spec: &'a Spec,
    shown: Instant,
    /// Bytes, messages and time, as they were shown last.
    before: (u64, u64, Instant),
    terminal: bool,
}

impl<'a> Line<'a> {
    fn new(shutdown: &'a Shutdown, spec: &'a Spec) -> Self {
        let now = Instant::now();
        Self {
            shutdown,
            spec,
            shown: now,
            before: (0, 0, now),
            terminal: io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, progress: &Progress) -> ControlFlow<()> {
        if self.terminal && self.shown.elapsed() >= SHOWN {
            self.shown = Instant::now();
            let (bytes, messages, since) = self.before;
            let seconds = since.elapsed().as_secs_f64();
            // A search begins each step with nothing.
            let now = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            let rates = (now(progress.bytes, bytes), now(progress.messages, messages));
            self.before = (progress.bytes, progress.messages, self.shown);
            eprint!("\r\x1b[K{}", shown::progress(self.spec, progress, rates));
        }
        match self.shutdown.requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
