//! `lowroad features live`: a device's frames, until a signal or a time.

use std::io::{self, IsTerminal};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use datapath::Datapath;
use features::kernel::Wakeup;
use features::live::{Direction, Ended, Features, LiveCounters, Plan, datapaths};
use features::sink::{Mode, Shared};
use process::shutdown::Shutdown;
use serde_json::json;
use units::Span;

use super::account;
use super::extraction::Extraction;
use super::metrics::{Metrics, MetricsServer};
use super::models::{LiveModels, Models};
use super::output::Output;
use super::recording::{self, CaptureWriter, PcapOut};
use crate::exit::{Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Live {
    /// Network interface
    interface: String,
    /// Handle packets here; `lowroad doctor` lists the datapaths that can run
    #[arg(long)]
    datapath: String,
    /// Stop after this long [default: at SIGINT or SIGTERM]
    #[arg(long, value_name = "DURATION")]
    duration: Option<Span>,
    /// Capture packets that arrive, that this machine sends, or both
    #[arg(long, value_enum, default_value = "in")]
    direction: DirectionName,
    /// Capture frames for other machines, too
    #[arg(long)]
    promiscuous: bool,
    /// Read the records of XDP datapaths at these times: adaptive, every (each wakes lowroad), or an
    /// interval, as 10ms
    #[arg(long, value_name = "WHEN", default_value = "adaptive", value_parser = wakeup)]
    wakeup: Wakeup,
    /// Leave out packets beyond N a second, and count them
    #[arg(long, value_name = "N")]
    max_pps: Option<NonZeroU32>,
    /// Use N threads, with each flow in one of them [default: depends on the datapath]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Drop each packet once it is counted: use only where packets are copies, as on a mirror port
    #[arg(long)]
    tap: bool,
    /// Count both directions of a flow on one CPU, even if the device spreads them over several
    #[arg(long)]
    steer: bool,
    #[command(flatten)]
    models: Models,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    pcap_out: PcapOut,
    #[command(flatten)]
    metrics: Metrics,
    #[command(flatten)]
    extraction: Extraction,
}

/// A shorter timer would keep a CPU busy.
const MIN_TIMER: Duration = Duration::from_micros(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DirectionName {
    In,
    Out,
    Both,
}

impl From<DirectionName> for Direction {
    fn from(name: DirectionName) -> Self {
        match name {
            DirectionName::In => Self::In,
            DirectionName::Out => Self::Out,
            DirectionName::Both => Self::Both,
        }
    }
}

impl Live {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let datapath = self.datapath()?;
        let metrics = self.metrics.serve()?;
        let mut models = self.models.load()?;
        let (plan, capture) = self.plan(&mut models)?;
        let running = datapath.start(&plan)?;
        // The plan keeps the outputs open.
        drop(plan);
        control::ready::notify().context("notifying the service manager")?;
        let started = Instant::now();
        let mut watch = Watch {
            metrics,
            models,
            capture,
            started,
        };
        self.watch(&shutdown, &*running, &mut watch);
        let Ended { counters, failed } = running.stop();
        watch.update(&counters);
        let Watch {
            models, capture, ..
        } = watch;
        let recorded = capture.map_or_else(recording::Outcome::default, CaptureWriter::finish);
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let text = text(&counters, &models, &recorded, json);
        self.pcap_out.report(&self.output, &text)?;
        if let Some(why) = failed {
            return Err(Failure::Failed(anyhow!("{}: {why}", self.interface)));
        }
        if counters.lost_rows > 0 {
            let lost = counters.lost_rows;
            return Err(Failure::Failed(anyhow!("{lost} rows are lost")));
        }
        recorded.check()?;
        Ok(counters.account.check()?)
    }

    fn plan(&self, models: &mut LiveModels) -> Result<(Plan, Option<CaptureWriter>), Failure> {
        let mut netlink =
            netdev::Netlink::new().map_err(|error| Failure::Failed(anyhow!("netlink: {error}")))?;
        let link = netlink.link_by_name(&self.interface);
        let link = link.map_err(|error| Failure::Input(format!("{}: {error}", self.interface)))?;
        let schema = match models.schema() {
            Some(theirs) => self.output.schema_or(theirs)?,
            None => self.output.schema()?,
        };
        let options = self.extraction.options(schema, self.max_pps)?;
        let rows = features::arrow_schema(schema, &options);
        let output = Shared::new(models.sink(&self.output, &rows)?);
        let capture = self.pcap_out.start(Mode::Live, &self.output)?;
        let plan = Plan {
            interface: self.interface.clone(),
            ifindex: link.index,
            options,
            schema,
            direction: self.direction.into(),
            promiscuous: self.promiscuous,
            tap: self.tap,
            workers: self.workers,
            sink: Arc::new(move || output.handle()),
            wakeup: self.wakeup,
            model: models.slot(),
            steer: self.steer,
            recorder: capture.as_ref().map(CaptureWriter::recorder),
        };
        Ok((plan, capture))
    }

    /// The requested datapath, if it can run here.
    fn datapath(&self) -> Result<Box<dyn Datapath<Features>>, Failure> {
        let mut all = datapaths();
        let Some(at) = all.iter().position(|one| one.name() == self.datapath) else {
            let names: Vec<&str> = all.iter().map(|one| one.name()).collect();
            let (name, names) = (&self.datapath, names.join(", "));
            let what = format!("no live datapath is called \"{name}\"; there are {names}");
            return Err(Failure::Input(what));
        };
        let datapath = all.swap_remove(at);
        match datapath.check() {
            Ok(()) => Ok(datapath),
            Err(missing) => Err(Failure::from(missing).needed_by(&self.datapath)),
        }
    }

    /// Waits for the end.
    fn watch(
        &self,
        shutdown: &Shutdown,
        running: &dyn datapath::Running<Features>,
        watch: &mut Watch,
    ) {
        while running.failed().is_none() {
            let left = self.duration.map_or(Duration::MAX, |all| {
                all.0.saturating_sub(watch.started.elapsed())
            });
            if left.is_zero() || shutdown.wait(left.min(Duration::from_millis(500))) {
                return;
            }
            let counters = running.counters();
            watch.update(&counters);
            if io::stderr().is_terminal() {
                show(&counters, watch.started);
            }
        }
    }
}

/// The parts that are updated during a run.
struct Watch {
    metrics: MetricsServer,
    models: LiveModels,
    capture: Option<CaptureWriter>,
    started: Instant,
}

impl Watch {
    fn update(&mut self, counters: &LiveCounters) {
        let recorded = self.capture.as_ref().map(CaptureWriter::recorded);
        self.metrics
            .update(counters, self.models.update(), recorded);
    }
}

fn wakeup(text: &str) -> Result<Wakeup, String> {
    match text {
        "adaptive" => Ok(Wakeup::Adaptive),
        "every" => Ok(Wakeup::Every),
        time => match time.parse() {
            // Rows are looked for each second.
            Ok(Span(time)) if (MIN_TIMER..=Duration::from_secs(1)).contains(&time) => {
                Ok(Wakeup::Timer(time))
            }
            _ => Err("write adaptive, every, or a time from 100us to 1s".to_owned()),
        },
    }
}

fn text(
    counters: &LiveCounters,
    models: &LiveModels,
    recorded: &recording::Outcome,
    json: bool,
) -> String {
    let rows = (counters.rows, counters.lost_rows);
    if json {
        let more = json!({
            "no_room": counters.no_room,
            "changed_queue": counters.changed_queue,
            "pcap_out": recorded.json(),
        });
        let mut account = counters.account.json(rows, more);
        models.json(&mut account);
        return format!("{account:#}\n");
    }
    let words = account::words(&counters.account, counters.rows);
    let no_room = match counters.no_room {
        0 => String::new(),
        some => format!(", {some} more dropped: no room"),
    };
    format!("{words}{no_room}{}\n{}", recorded.words(), models.words())
}

fn show(counters: &LiveCounters, started: Instant) {
    let elapsed = started.elapsed().as_secs();
    let words = account::words(&counters.account, counters.rows);
    eprint!("\r\x1b[K{words}  no room {}  {elapsed} s", counters.no_room);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakeups_are_named_or_times_that_make_sense() {
        assert_eq!(wakeup("adaptive"), Ok(Wakeup::Adaptive));
        assert_eq!(wakeup("every"), Ok(Wakeup::Every));
        let timer = Wakeup::Timer(Duration::from_millis(10));
        assert_eq!(wakeup("10ms"), Ok(timer));
        for wrong in ["", "never", "10", "0ms", "50us", "2s"] {
            assert!(wakeup(wrong).is_err(), "{wrong}");
        }
    }
}
