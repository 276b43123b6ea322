//! `lowroad features live`: a device's frames, until a signal or a time.

use std::io::{self, IsTerminal};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use datapath::Datapath;
use features::Options;
use features::kernel::Wakeup;
use features::live::{Direction, Features, LiveCounters, Plan, RunSummary, datapaths, givers};
use features::schema::Schema;
use features::sink::{Mode, Shared};
use process::shutdown::Shutdown;
use serde_json::json;
use units::Span;

use super::account;
use super::extraction::Extraction;
use super::metrics::{Metrics, MetricsServer};
use super::models::{LiveModels, Models};
use super::output::{DEFAULT_SCHEMA, Output};
use super::recording::{self, CaptureWriter, PcapOut};
use crate::exit::{self, Failure, OrFail as _};

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
    /// Wait for the interface until it is there and up, also when it was deleted and comes back
    #[arg(long)]
    wait: bool,
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
    /// Refuse flow.v1 where the datapath cannot give all of its columns, instead of writing null in these
    #[arg(long)]
    strict: bool,
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
        let models = self.models.load()?;
        let mut link = match self.wait {
            true => None,
            false => Some(self.link()?),
        };
        let mut session = self.session(metrics, models)?;
        if self.wait {
            session.notify_ready()?;
        }
        let mut failed = None;
        while let Some(ifindex) = link
            .take()
            .or_else(|| self.wait_for_link(&shutdown, &session))
        {
            match self.capture(&*datapath, ifindex, &shutdown, &mut session)? {
                Some(why) if self.wait && session.goes_on && !self.is_ready(ifindex) => {
                    tracing::warn!("{}: {why}; waiting until it is back", self.interface);
                }
                ended => {
                    failed = ended;
                    break;
                }
            }
        }
        self.finish(session, failed, json)
    }

    /// Runs the datapath on a device until the end of the run, or until it fails; says why it did.
    fn capture(
        &self,
        datapath: &dyn Datapath<Features>,
        ifindex: u32,
        shutdown: &Shutdown,
        session: &mut Session,
    ) -> Result<Option<String>, Failure> {
        let running = match datapath.start(&self.plan(ifindex, session)) {
            Ok(running) => running,
            // The device has gone again, or there are rows to complete.
            Err(error) if session.has_captured || self.wait && !self.is_ready(ifindex) => {
                return Ok(Some(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        session.has_captured = true;
        session.notify_ready()?;
        self.watch(shutdown, &*running, session);
        let RunSummary { counters, failed } = running.stop();
        session.before = session.before.and(counters);
        // While it waits for the device, its metrics are those of all that it has seen.
        let before = session.before;
        session.update(&before);
        Ok(failed)
    }

    /// Completes the outputs, and says what was done, then what went wrong.
    fn finish(
        &self,
        mut session: Session,
        failed: Option<String>,
        json: bool,
    ) -> Result<(), Failure> {
        let written = session.output.complete();
        let counters = LiveCounters {
            rows: written.rows,
            lost_rows: written.lost_rows,
            ..session.before
        };
        session.update(&counters);
        let Session {
            models, capture, ..
        } = session;
        let recorded = capture.map_or_else(recording::Outcome::default, CaptureWriter::finish);
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let text = text(&counters, &models, &recorded, json);
        self.pcap_out.report(&self.output, &text)?;
        if !self.has_reader() {
            return Ok(counters.account.check()?);
        }
        if let Some(why) = failed {
            return Err(Failure::Failed(anyhow!("{}: {why}", self.interface)));
        }
        written.result.or_fail()?;
        if counters.lost_rows > 0 {
            let lost = counters.lost_rows;
            return Err(Failure::Failed(anyhow!("{lost} rows are lost")));
        }
        recorded.check()?;
        Ok(counters.account.check()?)
    }

    /// What lasts from device to device.
    fn session(&self, metrics: MetricsServer, mut models: LiveModels) -> Result<Session, Failure> {
        let schema = match models.schema() {
            Some(theirs) => self.output.schema_or(theirs)?,
            None => self.output.schema()?,
        };
        let schema = match models.slot() {
            Some(_) => schema.with_kernel_class(),
            None => schema,
        };
        let schema = self.with_null(schema, &models);
        let options = self.extraction.options(schema, self.max_pps)?;
        let rows = features::arrow_schema(schema, &options);
        let output = Shared::persistent(models.sink(&self.output, &rows)?);
        let capture = self.pcap_out.start(Mode::Live, &self.output)?;
        Ok(Session {
            schema,
            options,
            output,
            metrics,
            models,
            capture,
            started: Instant::now(),
            before: LiveCounters::default(),
            goes_on: true,
            has_captured: false,
            is_ready: false,
        })
    }

    /// The default schema with null in the columns that the datapath does not give. Other schemas promise all of
    /// their columns, and a model needs its inputs: without these the datapath refuses to start.
    fn with_null(&self, schema: &'static Schema, models: &LiveModels) -> &'static Schema {
        if self.strict || schema.name != DEFAULT_SCHEMA {
            return schema;
        }
        let columns = schema.columns();
        let missing = columns
            .iter()
            .filter(|column| !givers(schema, column).contains(&self.datapath.as_str()))
            .map(|column| column.name.to_owned());
        let (inputs, missing): (Vec<String>, Vec<String>) =
            missing.partition(|column| models.needs(column));
        if missing.is_empty() {
            return schema;
        }
        if inputs.is_empty() {
            tracing::warn!(
                "{} does not give these columns, which are null: {}; --without leaves them out, --strict refuses them",
                self.datapath,
                missing.join(",")
            );
        }
        schema.with_null(&missing)
    }

    fn plan(&self, ifindex: u32, session: &Session) -> Plan {
        let output = session.output.clone();
        Plan {
            interface: self.interface.clone(),
            ifindex,
            options: session.options.clone(),
            schema: session.schema,
            direction: self.direction.into(),
            promiscuous: self.promiscuous,
            tap: self.tap,
            workers: self.workers,
            sink: Arc::new(move || output.handle()),
            wakeup: self.wakeup,
            model: session.models.slot(),
            steer: self.steer,
            recorder: session.capture.as_ref().map(CaptureWriter::recorder),
        }
    }

    /// The index of the interface, which must be there.
    fn link(&self) -> Result<u32, Failure> {
        let mut netlink =
            netdev::Netlink::new().map_err(|error| Failure::Failed(anyhow!("netlink: {error}")))?;
        let link = netlink.link_by_name(&self.interface);
        let link = link.map_err(|error| Failure::Input(format!("{}: {error}", self.interface)))?;
        Ok(link.index)
    }

    /// The index of the interface once it is there and up; none where the run ends before.
    fn wait_for_link(&self, shutdown: &Shutdown, session: &Session) -> Option<u32> {
        loop {
            let link = netdev::Netlink::new().and_then(|mut all| all.link_by_name(&self.interface));
            if let Some(link) = link.ok().filter(|link| link.up) {
                return Some(link.index);
            }
            let left = self.time_left(session);
            if left.is_zero() || shutdown.wait(left.min(LOOK)) || !self.has_reader() {
                return None;
            }
        }
    }

    /// Whether the interface that was found is still there, and up.
    fn is_ready(&self, ifindex: u32) -> bool {
        let link = netdev::Netlink::new().and_then(|mut all| all.link_by_name(&self.interface));
        link.is_ok_and(|link| link.index == ifindex && link.up)
    }

    /// Time until the end that was asked for.
    fn time_left(&self, session: &Session) -> Duration {
        self.duration.map_or(Duration::MAX, |all| {
            all.0.saturating_sub(session.started.elapsed())
        })
    }

    /// Whether the rows still have a reader: one that has closed standard output wants no more.
    fn has_reader(&self) -> bool {
        !self.output.is_standard() || exit::has_reader()
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
        session: &mut Session,
    ) {
        while running.failed().is_none() {
            let left = self.time_left(session);
            if left.is_zero() || shutdown.wait(left.min(LOOK)) || !self.has_reader() {
                session.goes_on = false;
                return;
            }
            let counters = session.before.and(running.counters());
            session.update(&counters);
            if io::stderr().is_terminal() {
                show(&counters, session.started);
            }
        }
    }
}

/// Between two looks at a run, or for an interface.
const LOOK: Duration = Duration::from_millis(500);

/// The outputs and counters of a run, which may see its interface go and come back.
struct Session {
    schema: &'static Schema,
    options: Options,
    output: Shared,
    metrics: MetricsServer,
    models: LiveModels,
    capture: Option<CaptureWriter>,
    started: Instant,
    /// Counted on the interface while it was there before.
    before: LiveCounters,
    /// Nobody has asked for the end.
    goes_on: bool,
    has_captured: bool,
    /// The service manager was told that the run has begun.
    is_ready: bool,
}

impl Session {
    fn update(&mut self, counters: &LiveCounters) {
        let recorded = self.capture.as_ref().map(CaptureWriter::recorded);
        self.metrics
            .update(counters, self.models.update(), recorded);
    }

    /// Tells the service manager once that the run has begun.
    fn notify_ready(&mut self) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.is_ready, true) {
            control::ready::notify().context("notifying the service manager")?;
        }
        Ok(())
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
