//! `lowroad netbench run`: tests against a server, one after the other.
#![expect(clippy::print_stderr, reason = "the progress line")]

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use netbench::client::{self, Error, Progress, Session};
use netbench::{DEFAULT_TESTS, Options, Outcome, Spec, Test, Token};
use process::limits;
use process::shutdown::Shutdown;
use units::{Pps, Size, Span};

use super::{box_plot, help, text};
use crate::exit::{self, Failure, OrFail as _};

/// The interval of updates of the progress line.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Server: HOST, HOST:PORT or [ADDRESS]:PORT
    #[arg(value_name = "TARGET")]
    target: String,
    #[arg(
        long,
        value_name = "TEST,...",
        value_delimiter = ',',
        default_value = DEFAULT_TESTS,
        help = help::tests()
    )]
    test: Vec<Test>,
    /// Run each test for this long after its warm-up
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    duration: Span,
    /// Warm up for this long [default: a tenth of the duration, at most 1s]
    #[arg(long, value_name = "DURATION")]
    warmup: Option<Span>,
    /// Repeat all tests N times, in turn; the spread of the repeats shows how far one can be trusted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// Use N sockets at once; each value makes a test
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    flows: Vec<u16>,
    /// Size of a request; each value makes a test [default: 1B]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    request: Vec<Size>,
    /// Size of a response; each value makes a test [default: 1B]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    response: Vec<Size>,
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', help = help::message())]
    message: Vec<Size>,
    #[arg(long, value_name = "RATE", help = help::rate())]
    rate: Option<Pps>,
    /// Send streams from the server to the client
    #[arg(long)]
    reverse: bool,
    /// Request socket buffers of this size at both ends
    #[arg(long, value_name = "SIZE")]
    socket_buffer: Option<Size>,
    /// Poll for packets this long before a read sleeps; needs CAP_NET_ADMIN at both ends
    #[arg(long, value_name = "DURATION")]
    busy_poll: Option<Span>,
    /// Include the count of each latency in JSON
    #[arg(long)]
    histogram: bool,
    /// Read the server's token from the first line of this file
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
        let mut session = match specs.iter().any(|spec| spec.test.needs_server()) {
            true => Some(self.open(token.as_ref())?),
            false => None,
        };
        // Before the first test a signal ends the program at once, as there is no result to keep.
        let shutdown = Shutdown::install().context("signals")?;
        let mut all = Vec::new();
        // Rounds, not blocks: a drift over time affects all tests alike.
        for _ in 0..self.repeat {
            for spec in &specs {
                let mut line = ProgressLine::new(&shutdown, spec);
                let mut watch = |progress: &Progress| line.show(progress);
                let outcome = match &mut session {
                    Some(session) => session.measure(spec, &mut watch),
                    None => client::measure(&self.target, spec, &mut watch),
                };
                line.clear();
                let outcome = outcome?;
                exit::print(&match json {
                    true => format!("{}\n", netbench::json::outcome(&outcome, self.histogram)),
                    false => text::text(&outcome),
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

    fn open(&self, token: Option<&Token>) -> Result<Session, Failure> {
        Session::open(&self.target, token).map_err(|error| match error {
            Error::NoToken(_) => Failure::Input(format!("{error} with --token-file")),
            other => other.into(),
        })
    }

    /// Ends the run with the results so far. It fails unless a signal ended it.
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
            // Some reasons begin with the target.
            false if why.starts_with(&self.target) => Err(Failure::Failed(anyhow!("{why}"))),
            false => Err(Failure::Failed(anyhow!("{}: {why}", self.target))),
        }
    }

    fn specs(&self) -> Result<Vec<Spec>, Failure> {
        let sizes = |sizes: &[Size]| sizes.iter().map(|size| size.0).collect();
        let options = Options {
            duration: self.duration.0,
            warmup: self.warmup.map(|span| span.0),
            flows: self.flows.clone(),
            request: sizes(&self.request),
            response: sizes(&self.response),
            message: sizes(&self.message),
            rate: self.rate.map(|rate| rate.0.into()),
            reverse: self.reverse,
            socket_buffer: self.socket_buffer.map(|size| size.0),
            busy_poll: self.busy_poll.map(|span| span.0),
        };
        Ok(options.specs(&self.test)?)
    }
}

fn draw(all: &[Outcome], json: bool) -> Result<(), Failure> {
    match json {
        true => Ok(()),
        false => exit::print(&box_plot::draw(all)),
    }
}

/// The progress line on a terminal, and the signal to end.
struct ProgressLine<'a> {
    shutdown: &'a Shutdown,
    spec: &'a Spec,
    shown: Instant,
    /// Bytes, messages and time at the last update.
    before: (u64, u64, Instant),
    terminal: bool,
}

impl<'a> ProgressLine<'a> {
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
        if self.terminal && self.shown.elapsed() >= PROGRESS_INTERVAL {
            self.shown = Instant::now();
            let (bytes, messages, since) = self.before;
            let seconds = since.elapsed().as_secs_f64();
            // Each step of a search counts from 0.
            let now = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            let rates = (now(progress.bytes, bytes), now(progress.messages, messages));
            self.before = (progress.bytes, progress.messages, self.shown);
            eprint!("\r\x1b[K{}", text::progress(self.spec, progress, rates));
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
