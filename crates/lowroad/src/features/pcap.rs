//! `lowroad features pcap`: a capture, from its first record to its last.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use features::pcap::{Fault, Progress, Run, Summary};
use features::sink::{Mode, Scorer};
use serde_json::json;

use super::account;
use super::extraction::Extraction;
use super::output::Output;
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
    extraction: Extraction,
}

/// Bytes of a file from which on several threads read it.
const LARGE: u64 = 256 << 20;
/// Beyond, whoever reads the file could not keep them busy.
const MOST_THREADS: u32 = 8;

impl Pcap {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let schema = self.output.schema()?;
        let run = Run {
            options: self.extraction.options(schema, None)?,
            schema,
        };
        let threads = threads(self.threads, &self.file);
        read(&self.file, &run, &self.output, None, threads, json)
    }
}

/// As many threads as were asked for, or are worth while.
pub(super) fn threads(asked: Option<u32>, file: &Path) -> NonZeroU32 {
    let threads = asked.unwrap_or_else(|| worth_while(file));
    NonZeroU32::new(threads).unwrap_or(NonZeroU32::MIN)
}

/// Reads a capture, with scores where there is a scorer, and says what became of its packets.
pub(super) fn read(
    file: &Path,
    run: &Run,
    output: &Output,
    scorer: Option<Box<dyn Scorer>>,
    threads: NonZeroU32,
    json: bool,
) -> Result<(), Failure> {
    let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
    let input = open(file)?;
    let (sink, _unscored) = output.create_scored(&run.arrow_schema(), Mode::Whole, scorer)?;
    let progress = Progress::default();
    let started = Instant::now();
    let summary = thread::scope(|scope| {
        let running = scope.spawn(|| run.run_on(threads, input, sink, &progress));
        while !running.is_finished() {
            if shutdown.wait(Duration::from_millis(20)) {
                progress.stop.store(true, Ordering::Relaxed);
                break;
            }
            show(&progress, started);
        }
        running.join()
    });
    let summary = summary.map_err(|_| anyhow!("reading {} panicked", file.display()))?;
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    finish(file, output, &summary, json)
}

/// Says what was done, then what went wrong.
fn finish(file: &Path, output: &Output, summary: &Summary, json: bool) -> Result<(), Failure> {
    output.report(&text(summary, json))?;
    let file = file.display();
    summary.check().map_err(|fault| match fault {
        Fault::Input(_) | Fault::LinkType => Failure::Input(format!("{file}: {fault}")),
        Fault::Output { .. } | Fault::Unaccounted(_) => Failure::Failed(anyhow!(fault)),
    })
}

/// Threads for a file where none were asked for: more take less time, but not less work.
fn worth_while(file: &Path) -> u32 {
    let is_large = fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() >= LARGE);
    if !is_large {
        return 1;
    }
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    u32::try_from(cpus).map_or(MOST_THREADS, |cpus| cpus.min(MOST_THREADS))
}

fn text(summary: &Summary, json: bool) -> String {
    if json {
        let rows = (summary.rows, summary.lost_rows);
        let more = json!({"stopped": summary.stopped});
        return format!("{:#}\n", summary.counters.json(rows, more));
    }
    let stopped = if summary.stopped { ", stopped" } else { "" };
    let words = account::words(&summary.counters, summary.rows);
    format!("{words}{stopped}\n")
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

fn open(path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
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
