//! `lowroad replicate capture`: a tree's changes into a log, until a signal.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use control::shutdown::Shutdown;
use control::units::{Size, Span};
use replicate::capture::{self, Progress, Rescan};
use replicate::patterns::Patterns;
use replicate::service::Progress as Said;
use replicate::service::capture::{self as service, Captured, Recorder, Settings, unfinished};
use replicate::service::freezer::{Bounded, Pressure};
use replicate::service::keep::Keep;
use serde_json::json;

use crate::exit::{self, Failure};

/// How often the line on the terminal changes.
const SHOWN: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Capture {
    /// The directory to follow, with all below it, on one file system
    #[arg(long, value_name = "DIR")]
    tree: PathBuf,
    /// The folder of the log, made if there is none; a log that is there is written on, with what the
    /// tree has become since
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Copy the whole tree into a log that is there, instead of comparing it with that
    #[arg(long)]
    afresh: bool,
    /// Write down where files are written, and read that before each epoch, instead of each write's
    /// bytes: less of a burden for a program that writes the same places again and again
    #[arg(long)]
    journal: bool,
    /// Follow the tree although its file system tells nothing of this, and look for it instead: files
    /// that are mapped are read before each epoch, and each second
    #[arg(long, value_name = "OPERATION")]
    allow: Vec<Unseen>,
    /// Compare all of the tree with the log meanwhile, again and again, in so much time; what differs is said
    /// and read again
    #[arg(long, value_name = "DURATION", conflicts_with = "allow")]
    check: Option<Span>,
    /// Leave the programs attached when this ends, killed or not, and note which files change: the next capture
    /// with --pin reads those instead of the whole tree. One without detaches them. DIR is in a BPF file system
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = capture::FOLDER,
        conflicts_with = "allow"
    )]
    pin: Option<PathBuf>,
    /// Freeze the application while more than this waits to be read, and thaw it when half of that is left:
    /// it may not be faster than its log. Never for more than 5 seconds at once
    #[arg(long, value_name = "SIZE", requires = "cgroup")]
    bounded: Option<Size>,
    /// The application's cgroup, a directory of version 2, with all that write to the tree
    #[arg(long, value_name = "DIR", requires = "bounded")]
    cgroup: Option<PathBuf>,
    /// Write down only what this names, with all below it, and the directories on the way to it. Repeat it for
    /// more. Like a line of .gitignore: `*.db` is a name anywhere, `/data` one in the tree itself
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out what this names, with all below it, whatever --include says. Repeat it for more
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Room for what waits to be read: a power of two. What finds none is read from the tree instead;
    /// with --bounded the application is frozen when half of it is full
    #[arg(long, value_name = "SIZE", value_parser = ring, default_value = "64MiB")]
    ring: u32,
    /// Read so much of the tree in a second at most, when it is copied, compared or read back, as in 50MiB
    /// [default: as fast as it goes]
    #[arg(long, value_name = "SIZE")]
    rate_limit: Option<Size>,
    /// Keep the log to about this size, as in 10GiB: its older part is folded meanwhile, and epochs before the newest
    /// half of SIZE are forgotten [default: the log grows]
    #[arg(long, value_name = "SIZE")]
    keep: Option<Size>,
}

fn ring(text: &str) -> Result<u32, String> {
    let Size(bytes) = text.parse()?;
    u32::try_from(bytes).map_err(|_| format!("{text}: 2 GiB at most"))
}

/// What a file system may tell nothing of.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unseen {
    /// Stores through shared mappings
    Mmap,
}

impl Capture {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let recorder = Recorder::begin(&self.settings()).map_err(super::failure)?;
        let keep = self
            .keep
            .map(|Size(bytes)| Keep::begin(&self.to, bytes))
            .transpose()
            .map_err(super::failure)?;
        let followed = self.follow(recorder, &shutdown, json);
        drop(keep);
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let (captured, whole) = followed?;
        if json {
            let ended = Said::Capture(captured.clone()).object();
            exit::print(&format!("{}\n", json!({ "ended": ended })))?;
        } else {
            exit::print(&format!("{}\n", line(&captured)))?;
        }
        match whole {
            true => Ok(()),
            false => Err(super::failure(unfinished(&captured))),
        }
    }

    /// Until a signal; whether the log's last epoch has all that had happened by then.
    fn follow(
        &self,
        mut recorder: Recorder,
        shutdown: &Shutdown,
        json: bool,
    ) -> Result<(Captured, bool), Failure> {
        let mut ready = false;
        let mut shown = Instant::now();
        let mut show = |captured: &Captured| {
            if shown.elapsed() >= SHOWN && io::stderr().is_terminal() {
                shown = Instant::now();
                eprint!("\r\x1b[K{}", line(captured));
            }
        };
        loop {
            recorder
                .wait(Some(shutdown.as_fd()))
                .map_err(super::failure)?;
            if shutdown.requested() {
                return recorder.finish().map_err(super::failure);
            }
            let stepped = recorder.step(&mut |captured| {
                show(captured);
                shutdown.requested()
            });
            let captured = stepped.map_err(super::failure)?;
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
            afresh: self.afresh,
            journal: self.journal,
            pin: self.pin.clone(),
            allow: allow.collect(),
            check: self.check.map(|Span(round)| round),
            patterns: Patterns::new(self.include.clone(), self.exclude.clone()),
            ring_bytes: self.ring,
            bounded: self
                .bounded
                .zip(self.cgroup.clone())
                .map(|(Size(bytes), cgroup)| Bounded { bytes, cgroup }),
            rate_limit: self
                .rate_limit
                .and_then(|Size(bytes)| NonZeroU64::new(bytes)),
            keep: self.keep.map(|Size(bytes)| bytes),
        }
    }

    /// One line, once the log has the tree.
    fn announce(&self, captured: &Captured, json: bool) -> Result<(), Failure> {
        if json {
            let ready = Said::Capture(captured.clone()).object();
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
        control::ready::notify().context("telling that it follows")?;
        Ok(())
    }
}

fn line(captured: &Captured) -> String {
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
        "epoch {}  events {}  waiting {} B  dropped {}  in doubt {}  read back {} B{bounded}",
        progress.epoch,
        progress.events,
        progress.waiting,
        progress.dropped,
        progress.doubtful,
        progress.read_back
    )
}

fn pressed(pressure: &Pressure) -> String {
    let now = if pressure.frozen { ", and now" } else { "" };
    let (freezes, seconds) = (pressure.freezes, pressure.time.as_secs_f64());
    format!("  frozen {freezes} times for {seconds:.3} s{now}")
}

/// What was found when the log was taken up.
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

pub(super) fn failure(error: capture::Error) -> Failure {
    use capture::Error;
    match error {
        Error::Privileges => Failure::Missing(vec![(
            "capture".to_owned(),
            datapath::Missing::new("needs root", "run with sudo"),
        )]),
        Error::Silent { .. } => Failure::Missing(vec![(
            "capture".to_owned(),
            datapath::Missing::new(
                error.to_string(),
                "--allow mmap: files that are mapped are read before each epoch, and each second",
            ),
        )]),
        Error::Pin { .. } => Failure::Missing(vec![(
            "capture".to_owned(),
            datapath::Missing::new(error.to_string(), "run without --pin"),
        )]),
        Error::Kernel { .. } => Failure::Missing(vec![(
            "capture".to_owned(),
            datapath::Missing::new(
                error.to_string(),
                "run a newer kernel, or follow a tree on ext4",
            ),
        )]),
        Error::Preempted { .. } => Failure::Missing(vec![(
            "capture".to_owned(),
            datapath::Missing::new(error.to_string(), "boot with preempt=voluntary"),
        )]),
        Error::Tree { .. } | Error::FileSystem { .. } | Error::Patterns(_) => {
            Failure::Input(error.to_string())
        }
        failed => Failure::Failed(failed.into()),
    }
}

/// Operations that are not seen on a tree's file system.
pub(super) fn invisible(operations: &[&str]) -> Failure {
    let refused = operations.iter().map(|operation| {
        let what = format!("{operation} is not seen on this file system");
        let remedy = "see lowroad replicate coverage; what can be looked for, --allow names";
        ("capture".to_owned(), datapath::Missing::new(what, remedy))
    });
    Failure::Missing(refused.collect())
}
