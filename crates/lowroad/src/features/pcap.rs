//! `lowroad features pcap`: a capture, from its first record to its last.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use features::pcap::{Fault, Progress, Run, Summary};
use features::sink::Mode;
use serde_json::json;

use super::account;
use super::extraction::Extraction;
use super::output::Output;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(super) struct Pcap {
    /// A pcap or pcapng file, or - for standard input
    file: PathBuf,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    extraction: Extraction,
}

impl Pcap {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let run = Run {
            options: self.extraction.options(None)?,
            schema: self.output.schema()?,
        };
        let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
        let input = open(&self.file)?;
        let sink = self.output.create(&run.arrow_schema(), Mode::Whole)?;
        let progress = Progress::default();
        let started = Instant::now();
        let summary = thread::scope(|scope| {
            let running = scope.spawn(|| run.run(input, sink, &progress));
            while !running.is_finished() {
                if shutdown.wait(Duration::from_millis(20)) {
                    progress.stop.store(true, Ordering::Relaxed);
                    break;
                }
                show(&progress, started);
            }
            running.join()
        });
        let summary = summary.map_err(|_| anyhow!("reading {} panicked", self.file.display()))?;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        self.finish(&summary, json)
    }

    /// Says what was done, then what went wrong.
    fn finish(&self, summary: &Summary, json: bool) -> Result<(), Failure> {
        self.output.report(&text(summary, json))?;
        let file = self.file.display();
        summary.check().map_err(|fault| match fault {
            Fault::Input(_) | Fault::LinkType => Failure::Input(format!("{file}: {fault}")),
            Fault::Output { .. } | Fault::Unaccounted(_) => Failure::Failed(anyhow!(fault)),
        })
    }
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
