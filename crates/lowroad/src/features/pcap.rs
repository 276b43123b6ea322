//! `lowroad features pcap`: a capture, from its first record to its last.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use features::live::LiveCounters;
use features::pcap::{self, Fault, Progress, Run, SoFar, Summary};
use features::sink::{Mode, Scorer};
use serde_json::json;

use super::account;
use super::extraction::Extraction;
use super::metrics::{Metrics, Served};
use super::models::Told;
use super::output::Output;
use super::recording::{self, Captured, PcapOut};
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(super) struct Pcap {
    /// A pcap or pcapng file, or - for standard input
    file: PathBuf,
    /// Threads that share the flows; by default 1, and for files of 256 MiB or more one for each CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    pcap_out: PcapOut,
    #[command(flatten)]
    metrics: Metrics,
    #[command(flatten)]
    extraction: Extraction,
}

impl Pcap {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let schema = self.output.schema()?;
        let run = Run {
            options: self.extraction.options(schema, None)?,
            schema,
        };
        let reading = Reading {
            file: &self.file,
            run: &run,
            output: &self.output,
            pcap_out: Some(&self.pcap_out),
            metrics: self.metrics.serve()?,
            threads: self.threads()?,
        };
        reading.read(None, json)
    }

    fn threads(&self) -> Result<NonZeroU32, Failure> {
        if !self.pcap_out.is_asked() {
            let asked = self.threads.and_then(NonZeroU32::new);
            return Ok(pcap::threads(asked, &self.file));
        }
        if self.file != Path::new("-") && self.pcap_out.goes_to(&self.file) {
            let what = "is read, and cannot be --pcap-out as well";
            return Err(Failure::Input(format!("{} {what}", self.file.display())));
        }
        match self.threads {
            None | Some(1) => Ok(NonZeroU32::MIN),
            Some(_) => Err(Failure::Input(
                "--pcap-out keeps the order of packets, which several --threads do not".to_owned(),
            )),
        }
    }
}

/// A capture that is read, and what becomes of it.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) file: &'a Path,
    pub(super) run: &'a Run,
    pub(super) output: &'a Output,
    pub(super) pcap_out: Option<&'a PcapOut>,
    pub(super) metrics: Served,
    pub(super) threads: NonZeroU32,
}

impl Reading<'_> {
    /// Reads it, with scores where there is a scorer, and says what became of its packets.
    pub(super) fn read(&self, scorer: Option<Box<dyn Scorer>>, json: bool) -> Result<(), Failure> {
        let (file, run) = (self.file, self.run);
        if file != Path::new("-") && self.output.goes_to(file) {
            let what = "is read, and cannot be --out as well";
            return Err(Failure::Input(format!("{} {what}", file.display())));
        }
        by_small_pages();
        let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
        let input = open(file)?;
        let rows = run.arrow_schema();
        let scores = scorer.is_some();
        let (sink, unscored) = self.output.create_scored(&rows, Mode::Whole, scorer)?;
        let capture = match self.pcap_out {
            Some(out) => out.start(Mode::Whole, self.output)?,
            None => None,
        };
        let recorder = capture.as_ref().map(Captured::recorder);
        let progress = Progress::default();
        let started = Instant::now();
        let summary = thread::scope(|scope| {
            let running = scope.spawn(|| match recorder {
                None => run.run_on(self.threads, input, sink, &progress),
                recorder => run.run_recorded(input, sink, recorder, &progress),
            });
            while !running.is_finished() {
                if shutdown.wait(Duration::from_millis(20)) {
                    progress.stop.store(true, Ordering::Relaxed);
                    break;
                }
                self.tell(progress.so_far(), capture.as_ref());
                show(&progress, started);
            }
            running.join()
        });
        let summary = summary.map_err(|_| anyhow!("reading {} panicked", file.display()))?;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let unscored = scores.then(|| unscored.rows());
        self.finish(&summary, capture, unscored, json)
    }

    fn tell(&self, so_far: SoFar, capture: Option<&Captured>) {
        let counters = LiveCounters {
            account: so_far.counters,
            rows: so_far.rows,
            lost_rows: so_far.lost_rows,
            ..LiveCounters::default()
        };
        let recorded = capture.map(Captured::recorded);
        self.metrics.tell(&counters, Told::default(), recorded);
    }

    /// Says what was done, then what went wrong.
    fn finish(
        &self,
        summary: &Summary,
        capture: Option<Captured>,
        unscored: Option<u64>,
        json: bool,
    ) -> Result<(), Failure> {
        let file = self.file.display();
        let fault = summary.check();
        if let Err(Fault::NoCapture(what)) = fault {
            return Err(Failure::Input(format!("{file}: {what}")));
        }
        let recorded = capture.map_or_else(recording::Ended::default, Captured::finish);
        let text = text(summary, &recorded, unscored, json);
        match self.pcap_out {
            Some(out) => out.report(self.output, &text)?,
            None => self.output.report(&text)?,
        }
        recorded.check()?;
        fault.map_err(|fault| match fault {
            Fault::Input(_) | Fault::NoCapture(_) | Fault::LinkType => {
                Failure::Input(format!("{file}: {fault}"))
            }
            Fault::Output { .. } | Fault::Unaccounted(_) => Failure::Failed(anyhow!(fault)),
        })
    }
}

fn text(
    summary: &Summary,
    recorded: &recording::Ended,
    unscored: Option<u64>,
    json: bool,
) -> String {
    if json {
        let rows = (summary.rows, summary.lost_rows);
        let mut more = json!({"stopped": summary.stopped, "pcap_out": recorded.json()});
        if let Some(unscored) = unscored {
            more["unscored"] = unscored.into();
        }
        return format!("{:#}\n", summary.counters.json(rows, more));
    }
    let stopped = if summary.stopped { ", stopped" } else { "" };
    let words = account::words(&summary.counters, summary.rows);
    let unscored = without_score(unscored);
    format!("{words}{}{stopped}\n{unscored}", recorded.words())
}

/// A line on rows for which a model had no answer, where there are some.
pub(super) fn without_score(rows: Option<u64>) -> String {
    match rows {
        None | Some(0) => String::new(),
        Some(rows) => format!("{rows} rows without a score\n"),
    }
}

/// A line that is written over, on terminals only.
fn show(progress: &Progress, started: Instant) {
    let packets = progress.packets.load(Ordering::Relaxed);
    let elapsed = started.elapsed().as_secs_f64();
    if io::stderr().is_terminal() && elapsed > 0.5 {
        #[expect(clippy::cast_precision_loss, reason = "shown in thousands")]
        let rate = packets as f64 / elapsed / 1e3;
        eprint!("\r\x1b[K{packets} packets  {rate:.0} kpps  {elapsed:.0} s");
    }
}

/// Has the kernel give memory by small pages. What a run allocates lies scattered: of huge pages, which
/// are cleared whole, it would use three quarters, and where a host takes back what its guest has freed,
/// getting them anew is a third of the run's CPU time.
fn by_small_pages() {
    // Without it a run takes longer, and does the same.
    if let Err(errno) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!("huge pages stay in use: {errno}");
    }
}

/// A capture file, or standard input for `-`.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let wrong = |error| Failure::Input(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(wrong)?;
    if file.metadata().map_err(wrong)?.is_dir() {
        return Err(Failure::Input(format!("{}: is a folder", path.display())));
    }
    Ok(Box::new(file))
}
