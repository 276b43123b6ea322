//! `lowroad netbench run`: tests against a server, one after the other.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use netbench::client::{AddressFamily, Client, Error, Progress, Target};
use netbench::{
    DEFAULT_TESTS, LOAD_FLOWS, LoadDirection, LoadPlan, Options, Outcome, Plan, Source, Test,
};
use process::limits;
use process::shutdown::Shutdown;
use units::{Rate, Size, Span};

use super::live_view::{self, Announcement, LiveView};
use super::{box_plot, help, text};
use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Measure against the server at HOST, HOST:PORT or [ADDRESS]:PORT
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
    /// Run each test for this long after its warm-up [default: 10s]
    #[arg(long, value_name = "DURATION")]
    duration: Option<Span>,
    /// Warm up for this long [default: a tenth of the duration, at most 1s]
    #[arg(long, value_name = "DURATION")]
    warmup: Option<Span>,
    /// Repeat all tests N times, in turn; the spread of the repeats shows how far one can be trusted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// Use N sockets at once; each value makes a test
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    flows: Vec<u16>,
    /// Send requests of this size; each value makes a test [default: 1B, or 16B in a datagram]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    request: Vec<Size>,
    /// Ask for responses of this size; each value makes a test [default: 1B, or 16B in a datagram]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    response: Vec<Size>,
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', help = help::message())]
    message: Vec<Size>,
    #[arg(long, value_name = "RATE", help = help::rate())]
    rate: Option<Rate>,
    /// End a stream after this many bytes, all flows together
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Size>,
    /// Send streams from the server to the client
    #[arg(long)]
    reverse: bool,
    /// Send streams in both directions at the same time
    #[arg(long, conflicts_with = "reverse")]
    bidir: bool,
    /// Measure latency on the idle path and again while TCP streams load it: up, down or both
    #[arg(long, value_name = "DIRECTION")]
    load: Option<LoadDirection>,
    /// Load each direction with N streams
    #[arg(long, value_name = "N", default_value_t = LOAD_FLOWS, requires = "load")]
    load_flows: u16,
    /// Report each interval of this length
    #[arg(short = 'i', long, value_name = "DURATION")]
    interval: Option<Span>,
    /// Use this TCP congestion control at both ends
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Limit TCP segments to this many bytes
    #[arg(long, value_name = "BYTES")]
    mss: Option<u16>,
    /// Let the kernel pace each TCP connection at this bit rate
    #[arg(long, value_name = "RATE")]
    pacing: Option<Rate>,
    /// Mark all packets of the tests with this code point, from 0 to 63
    #[arg(long, value_name = "N")]
    dscp: Option<u8>,
    /// Send from this address, through this device, or both
    #[arg(long, value_name = "ADDR|DEVICE|ADDR%DEVICE")]
    bind: Option<Source>,
    /// Send the first flow from this port, from 1 to 65535, and each further flow from the next
    #[arg(long, value_name = "PORT")]
    client_port: Option<u16>,
    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
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
        let mut plans = self.plans()?;
        let mut client = self.client(&plans)?;
        // Before the first test a signal ends the program at once, as there is no result to keep.
        let shutdown = Shutdown::install().context("signals")?;
        if self.interval.is_none() {
            live_view::add_intervals(&mut plans);
        }
        let mut announcement = Announcement::new(&plans, self.repeat, json);
        let mut all = Vec::new();
        // Rounds, not blocks: a drift over time affects all tests alike.
        for _ in 0..self.repeat {
            for plan in &plans {
                let outcomes =
                    self.measure(&mut client, plan, json, &shutdown, &mut announcement)?;
                for outcome in &outcomes {
                    exit::print(&match json {
                        true => format!("{}\n", netbench::json::outcome(outcome, self.histogram)),
                        false => text::text(outcome),
                    })?;
                }
                let early = outcomes
                    .iter()
                    .find_map(|outcome| outcome.ended_early.clone());
                all.extend(outcomes);
                if let Some(why) = early {
                    return self.ended(&all, json, &shutdown, &why);
                }
            }
        }
        draw(&all, json)
    }

    /// Runs one plan, and shows how it goes.
    fn measure(
        &self,
        client: &mut Client,
        plan: &Plan,
        json: bool,
        shutdown: &Shutdown,
        announcement: &mut Announcement,
    ) -> Result<Vec<Outcome>, Failure> {
        let mut view = LiveView::new(plan);
        let mut printed = Ok(());
        let mut watch = |progress: &Progress| {
            announcement.print();
            if let Some(interval) = progress
                .interval
                .as_ref()
                .filter(|_| self.interval.is_some())
            {
                view.clear();
                printed = exit::print(&match json {
                    true => format!("{}\n", netbench::json::interval(&plan.spec, interval)),
                    false => text::interval(plan, interval),
                });
            }
            view.show(progress);
            match shutdown.requested() || printed.is_err() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let outcomes = client.run(plan, &mut watch);
        view.clear();
        printed?;
        Ok(outcomes?)
    }

    fn client(&self, plans: &[Plan]) -> Result<Client, Failure> {
        let mut source = self.bind.clone().unwrap_or_default();
        source.port = self.client_port;
        let target = Target {
            name: self.target.clone(),
            token: super::token(self.token_file.as_deref())?,
            source,
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Some(AddressFamily::V4),
                (_, true) => Some(AddressFamily::V6),
                (false, false) => None,
            },
        };
        Client::new(target, plans).map_err(|error| match error {
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

    fn plans(&self) -> Result<Vec<Plan>, Failure> {
        let sizes = |sizes: &[Size]| sizes.iter().map(|size| size.0).collect();
        let options = Options {
            duration: self.duration.map(|span| span.0),
            warmup: self.warmup.map(|span| span.0),
            flows: self.flows.clone(),
            request: sizes(&self.request),
            response: sizes(&self.response),
            message: sizes(&self.message),
            rate: self.rate,
            reverse: self.reverse,
            bidirectional: self.bidir,
            load: self.load.map(|direction| LoadPlan {
                direction,
                flows: self.load_flows,
            }),
            bytes: self.bytes.map(|size| size.0),
            interval: self.interval.map(|span| span.0),
            congestion: self.congestion.clone(),
            mss: self.mss,
            pacing: self.pacing,
            dscp: self.dscp,
            socket_buffer: self.socket_buffer.map(|size| size.0),
            busy_poll: self.busy_poll.map(|span| span.0),
            client_port: self.client_port,
            histogram: self.histogram,
            token: self.token_file.is_some(),
        };
        Ok(options.plans(&self.test)?)
    }
}

fn draw(all: &[Outcome], json: bool) -> Result<(), Failure> {
    match json {
        true => Ok(()),
        false => exit::print(&box_plot::draw(all)),
    }
}
