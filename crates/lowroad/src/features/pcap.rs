//! `lowroad features pcap`: captures, from the first record of the first to the last record of the last.

use std::io::{self, IsTerminal};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use datapath::{Classify as _, ErrorClass};
use features::live::LiveCounters;
use features::pcap::{self, Captures, Damage, Fault, Progress, Run, SoFar, Summary};
use features::sink::{Mode, Scorer};
use process::shutdown::Shutdown;
use serde_json::{Value, json};

use super::account;
use super::extraction::Extraction;
use super::metrics::{Metrics, MetricsServer};
use super::model_counters::ModelCounters;
use super::output::Output;
use super::recording::{self, CaptureWriter, PcapOut};
use crate::exit::{Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Pcap {
    /// A pcap or pcapng file, also one compressed by gzip, zstd, xz or lz4; - for standard input; a directory; or
    /// a pattern, as 'day*/*.pcap'. Several captures are read in this order, as one
    #[arg(required_unless_present = "follow", value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
    /// Read the captures in this directory as a capture program writes and rotates them, in the order of their
    /// names, until SIGINT or SIGTERM
    #[arg(long, value_name = "DIR", conflicts_with_all = ["captures", "threads"])]
    follow: Option<PathBuf>,
    /// Use N threads, which share the flows [default: 1, or one for each CPU from 256 MiB of captures on]
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
        let files = capture_files(&self.captures)?;
        self.check_follow()?;
        let run = Run {
            options: self.extraction.options(schema, None)?,
            schema,
        };
        let reading = Reading {
            files: &files,
            follow: self.follow.as_deref(),
            run: &run,
            output: &self.output,
            pcap_out: Some(&self.pcap_out),
            metrics: self.metrics.serve()?,
            threads: self.threads(&files)?,
        };
        reading.read(None, json)
    }

    /// Refuses to follow what is no directory, or what this run writes to.
    fn check_follow(&self) -> Result<(), Failure> {
        let Some(directory) = &self.follow else {
            return Ok(());
        };
        let refuse = |what: &str| Err(Failure::Input(format!("{}: {what}", directory.display())));
        if !directory.is_dir() {
            return refuse("no such directory: --follow reads the captures in a directory");
        }
        if self.pcap_out.is_in(directory) {
            return refuse("--pcap-out would write to the directory that --follow reads");
        }
        Ok(())
    }

    fn threads(&self, files: &[PathBuf]) -> Result<NonZeroU32, Failure> {
        if !self.pcap_out.is_asked() {
            let asked = self.threads.and_then(NonZeroU32::new);
            return Ok(pcap::threads(asked, files));
        }
        let pcap_out = |file: &&PathBuf| self.pcap_out.goes_to(file);
        if let Some(file) = files
            .iter()
            .filter(|file| !is_standard(file))
            .find(pcap_out)
        {
            let what = "is read, and cannot be --pcap-out as well";
            return Err(Failure::Input(format!("{} {what}", file.display())));
        }
        match self.threads {
            None | Some(1) => Ok(NonZeroU32::MIN),
            Some(_) => Err(Failure::Input(
                "--pcap-out keeps the order of packets, which several --threads do not".to_owned(),
            )),
        }
    }
}

/// The files of these names, directories and patterns.
pub(super) fn capture_files(names: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    pcap::capture_files(names).map_err(|error| Failure::Input(error.to_string()))
}

fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

/// Captures to read, and the outputs.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) files: &'a [PathBuf],
    /// The directory to read instead, until a signal.
    pub(super) follow: Option<&'a Path>,
    pub(super) run: &'a Run,
    pub(super) output: &'a Output,
    pub(super) pcap_out: Option<&'a PcapOut>,
    pub(super) metrics: MetricsServer,
    pub(super) threads: NonZeroU32,
}

impl Reading<'_> {
    /// Reads the captures, with scores if there is a scorer, and prints the account of its packets.
    pub(super) fn read(&self, scorer: Option<Box<dyn Scorer>>, json: bool) -> Result<(), Failure> {
        let (files, run) = (self.files, self.run);
        let out = |file: &&PathBuf| self.output.goes_to(file);
        if let Some(file) = files.iter().filter(|file| !is_standard(file)).find(out) {
            let what = "is read, and cannot be --out as well";
            return Err(Failure::Input(format!("{} {what}", file.display())));
        }
        disable_huge_pages();
        let shutdown = Shutdown::install().context("signals")?;
        let end = AtomicBool::new(false);
        let captures = match self.follow {
            Some(directory) => Captures::following(directory, &end),
            None => Captures::of_files(files.to_vec()),
        };
        let rows = run.arrow_schema();
        let scores = scorer.is_some();
        let (sink, unscored) = self.output.create_scored(&rows, Mode::Whole, scorer)?;
        let capture = match self.pcap_out {
            Some(out) => out.start(Mode::Whole, self.output)?,
            None => None,
        };
        let recorder = capture.as_ref().map(CaptureWriter::recorder);
        let progress = Progress::default();
        progress
            .counts_rest
            .store(self.ends_by_itself(), Ordering::Relaxed);
        let started = Instant::now();
        let summary = thread::scope(|scope| {
            let running = scope.spawn(|| match recorder {
                None => run.run_on(self.threads, captures, sink, &progress),
                recorder => run.run_recorded(captures, sink, recorder, &progress),
            });
            while !running.is_finished() {
                if shutdown.wait(Duration::from_millis(20)) {
                    end.store(true, Ordering::Relaxed);
                    if self.follow.is_some() {
                        wait_until(GRACE, || running.is_finished());
                    }
                    if !running.is_finished() {
                        progress.stop.store(true, Ordering::Relaxed);
                    }
                    break;
                }
                self.update(progress.so_far(), capture.as_ref());
                show(&progress, started);
            }
            running.join()
        });
        let summary =
            summary.map_err(|_| Failure::Failed(anyhow!("reading the captures panicked")))?;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let unscored = scores.then(|| unscored.rows());
        self.finish(&summary, capture, unscored, json)
    }

    fn ends_by_itself(&self) -> bool {
        self.follow.is_none() && self.files.iter().all(|file| file.is_file())
    }

    fn update(&self, so_far: SoFar, capture: Option<&CaptureWriter>) {
        let counters = LiveCounters {
            account: so_far.counters,
            rows: so_far.rows,
            lost_rows: so_far.lost_rows,
            ..LiveCounters::default()
        };
        let recorded = capture.map(CaptureWriter::recorded);
        self.metrics
            .update(&counters, ModelCounters::default(), recorded);
    }

    /// Says what was done, then what went wrong.
    fn finish(
        &self,
        summary: &Summary,
        capture: Option<CaptureWriter>,
        unscored: Option<u64>,
        json: bool,
    ) -> Result<(), Failure> {
        let fault = summary.check();
        if let Err(Fault::NoCapture(what)) = fault {
            return Err(Failure::Input(what));
        }
        let recorded = capture.map_or_else(recording::Outcome::default, CaptureWriter::finish);
        let text = text(summary, &recorded, unscored, json);
        match self.pcap_out {
            Some(out) => out.report(self.output, &text)?,
            None => self.output.report(&text)?,
        }
        recorded.check()?;
        fault.map_err(|fault| match fault.class() {
            ErrorClass::Input => Failure::Input(match (&fault, self.files) {
                (Fault::LinkType, [file]) => format!("{}: {fault}", file.display()),
                _ => fault.to_string(),
            }),
            ErrorClass::Failed | ErrorClass::Missing => fault.into(),
        })
    }
}

/// How long a run that follows a directory goes on after a signal, to read what is there.
const GRACE: Duration = Duration::from_secs(5);

fn wait_until(at_most: Duration, is_done: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_done() && started.elapsed() < at_most {
        thread::sleep(Duration::from_millis(10));
    }
}

fn text(
    summary: &Summary,
    recorded: &recording::Outcome,
    unscored: Option<u64>,
    json: bool,
) -> String {
    if json {
        let rows = (summary.rows, summary.lost_rows);
        let damaged: Vec<Value> = summary.damaged.iter().map(damaged).collect();
        let mut more = json!({
            "stopped": summary.stopped,
            "pcap_out": recorded.json(),
            "captures": summary.captures,
            "damaged": damaged,
        });
        if let Some(unscored) = unscored {
            more["unscored"] = unscored.into();
        }
        return format!("{:#}\n", summary.counters.json(rows, more));
    }
    let stopped = if summary.stopped { ", stopped" } else { "" };
    let words = account::words(&summary.counters, summary.rows);
    let unscored = account::without_score(unscored);
    let captures = match summary.captures {
        0 | 1 => String::new(),
        captures => format!("{captures} captures, "),
    };
    format!("{captures}{words}{}{stopped}\n{unscored}", recorded.words())
}

fn damaged(damaged: &Damage) -> Value {
    let name = damaged.name.as_ref().map(|name| name.display().to_string());
    json!({"capture": name, "error": damaged.error.to_string()})
}

/// A line that is overwritten; only on a terminal.
fn show(progress: &Progress, started: Instant) {
    let packets = progress.packets.load(Ordering::Relaxed);
    let elapsed = started.elapsed().as_secs_f64();
    if io::stderr().is_terminal() && elapsed > 0.5 {
        #[expect(clippy::cast_precision_loss, reason = "shown in thousands")]
        let rate = packets as f64 / elapsed / 1e3;
        eprint!("\r\x1b[K{packets} packets  {rate:.0} kpps  {elapsed:.0} s");
    }
}

/// Disables huge pages for this process. Allocations are scattered: they would use three quarters of huge
/// pages, which are cleared whole. Where a host reclaims freed memory of its guests, getting huge pages again
/// takes a third of the run's CPU time.
fn disable_huge_pages() {
    // On failure the run is only slower.
    if let Err(errno) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!("huge pages stay in use: {errno}");
    }
}
