//! `lowroad replicate capture`: captures the changes of a tree into a log until a signal arrives.
#![expect(clippy::print_stderr, reason = "the progress line")]

use std::io::{self, IsTerminal};
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use process::shutdown::Shutdown;
use replicate::capture::{self, Progress, Rescan};
use replicate::patterns::Patterns;
use replicate::service::Progress as PartProgress;
use replicate::service::capture::{
    self as service, CaptureProgress, Recorder, Settings, unfinished,
};
use replicate::service::freezer::{Bound, Pressure};
use replicate::service::keep::Keep;
use serde_json::json;
use units::{ByteRate, Size, Span};

use crate::exit::{self, Failure, OrFail as _};

/// Interval between changes of the progress line.
const REFRESH: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Capture {
    /// Directory to follow, with everything below it, on one file system
    #[arg(long, value_name = "DIR")]
    tree: PathBuf,
    /// Folder of the log, created if necessary; an existing log is continued with the changes of the tree
    /// since then
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Copy the whole tree into an existing log, instead of comparing both; also begins a log of another tree
    /// anew, which is refused otherwise
    #[arg(long)]
    fresh: bool,
    /// Record where files are written, and read these ranges before each epoch, instead of the bytes of each
    /// write; this costs programs less that write to the same places repeatedly
    #[arg(long)]
    journal: bool,
    /// Follow the tree although its file system does not report this operation, and poll instead: mapped
    /// files are read before each epoch, and each second
    #[arg(long, value_name = "OPERATION")]
    allow: Vec<Unseen>,
    /// Compare the whole tree with the log in each interval of this length; report differences, and read
    /// them again
    #[arg(long, value_name = "DURATION", conflicts_with = "allow")]
    check: Option<Span>,
    /// Leave the BPF programs attached at exit, and record which files change: the next capture with --pin
    /// reads only these, and a capture without --pin detaches the programs. DIR is in a BPF file system
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = capture::FOLDER,
        conflicts_with = "allow"
    )]
    pin: Option<PathBuf>,
    /// Freeze the application while the backlog is larger than this, until half of it is left, and at most 5
    /// seconds at a time
    #[arg(long, value_name = "SIZE", requires = "cgroup")]
    bounded: Option<Size>,
    /// Cgroup (version 2) with all processes that write to the tree
    #[arg(long, value_name = "DIR", requires = "bounded")]
    cgroup: Option<PathBuf>,
    /// Record only paths that match, with everything below them. As in .gitignore, `*.db` is a name anywhere,
    /// and `/data` one at the top of the tree. Repeat it for more
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out paths that match, with everything below them, despite --include. Repeat it for more
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Size of the event buffer: a power of two. Events that do not fit are read from the tree instead; with
    /// --bounded, the application is frozen when it is half full
    #[arg(long, value_name = "SIZE", value_parser = ring, default_value = "64MiB")]
    ring: u32,
    /// Read the tree at most at this rate when it is copied, compared or read back, as in 50MiB/s
    /// [default: no limit]
    #[arg(long, value_name = "RATE")]
    rate_limit: Option<ByteRate>,
    /// Keep the log at about this size, as in 10GiB: epochs older than the newest half of SIZE are folded
    /// into one [default: the log grows]
    #[arg(long, value_name = "SIZE")]
    keep: Option<Size>,
}

fn ring(text: &str) -> Result<u32, String> {
    let Size(bytes) = text.parse()?;
    u32::try_from(bytes).map_err(|_| format!("{text}: 2 GiB at most"))
}

/// An operation that a file system may not report.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unseen {
    /// Stores through shared mappings
    Mmap,
}

impl Capture {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let recorder = Recorder::begin(&self.settings())?;
        let keep = self
            .keep
            .map(|Size(bytes)| Keep::begin(&self.to, bytes))
            .transpose()?;
        let followed = self.follow(recorder, &shutdown, json);
        drop(keep);
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let (captured, whole) = followed?;
        if json {
            let ended = PartProgress::Capture(captured.clone()).object();
            exit::print(&format!("{}\n", json!({ "ended": ended })))?;
        } else {
            exit::print(&format!("{}\n", line(&captured)))?;
        }
        match whole {
            true => Ok(()),
            false => Err(unfinished(&captured).into()),
        }
    }

    /// Follows the tree until a signal arrives. Returns the final progress, and whether the log's
    /// last epoch is complete.
    fn follow(
        &self,
        mut recorder: Recorder,
        shutdown: &Shutdown,
        json: bool,
    ) -> Result<(CaptureProgress, bool), Failure> {
        let mut ready = false;
        let mut refreshed = Instant::now();
        let mut show = |captured: &CaptureProgress| {
            if refreshed.elapsed() >= REFRESH && io::stderr().is_terminal() {
                refreshed = Instant::now();
                eprint!("\r\x1b[K{}", line(captured));
            }
        };
        loop {
            recorder.wait(Some(shutdown.as_fd()))?;
            if shutdown.requested() {
                return Ok(recorder.finish()?);
            }
            let stepped = recorder.step(&mut |captured| {
                show(captured);
                shutdown.requested()
            });
            let captured = stepped?;
            if !ready && captured.ready {
                ready = true;
                self.announce(&captured, json)?;
            }
            show(&captured);
        }
    }

    fn settings(&self) -> Settings {
        let allow = self.allow.iter().map(|allow| match allow {
            Unseen::Mmap => service::Unseen::Mmap,
        });
        Settings {
            tree: self.tree.clone(),
            log: self.to.clone(),
            fresh: self.fresh,
            journal: self.journal,
            pin: self.pin.clone(),
            allow: allow.collect(),
            check: self.check.map(|Span(round)| round),
            patterns: Patterns::new(self.include.clone(), self.exclude.clone()),
            ring_bytes: self.ring,
            bounded: self
                .bounded
                .zip(self.cgroup.clone())
                .map(|(Size(bytes), cgroup)| Bound { bytes, cgroup }),
            rate_limit: self
                .rate_limit
                .and_then(|ByteRate(bytes)| NonZeroU64::new(bytes)),
            keep: self.keep.map(|Size(bytes)| bytes),
        }
    }

    /// Prints one line once the log has the tree.
    fn announce(&self, captured: &CaptureProgress, json: bool) -> Result<(), Failure> {
        if json {
            let ready = PartProgress::Capture(captured.clone()).object();
            exit::print(&format!("{}\n", json!({ "ready": ready })))?;
        } else {
            let progress = &captured.progress;
            let (tree, to) = (self.tree.display(), self.to.display());
            exit::print(&format!(
                "ready  tree {tree}  log {to}  epoch {}{}\n",
                progress.epoch,
                rescanned(progress)
            ))?;
        }
        control::ready::notify().context("notifying the service manager")?;
        Ok(())
    }
}

fn line(captured: &CaptureProgress) -> String {
    let progress = &captured.progress;
    let bounded = captured.pressure.as_ref().map_or_else(String::new, pressed);
    if !captured.ready {
        let compared = rescanned(progress);
        return format!(
            "reading the tree  {} files in the log  read {} B  waiting {} B{compared}{bounded}",
            progress.files, progress.read_back, progress.waiting
        );
    }
    format!(
        "epoch {}  events {}  waiting {} B  dropped {}  in doubt {}  read back {} B{}{bounded}",
        progress.epoch,
        progress.events,
        progress.waiting,
        progress.dropped,
        progress.doubtful,
        progress.read_back,
        captured.stale.phrase()
    )
}

fn pressed(pressure: &Pressure) -> String {
    let now = if pressure.frozen { ", and now" } else { "" };
    let (freezes, seconds) = (pressure.freezes, pressure.time.as_secs_f64());
    format!("  frozen {freezes} times for {seconds:.3} s{now}")
}

/// The results of comparing the tree with a continued log.
fn rescanned(progress: &Progress) -> String {
    let Some(rescan) = progress.rescan else {
        return String::new();
    };
    let Rescan {
        files,
        new,
        gone,
        bytes,
        differed,
        journal,
    } = rescan;
    let which = if journal {
        " that the journal names"
    } else {
        ""
    };
    format!(
        "  compared {files} files{which}, {bytes} B: {new} new, {gone} gone, {differed} B differed"
    )
}
