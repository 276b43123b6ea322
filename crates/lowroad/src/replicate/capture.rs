//! `lowroad replicate capture`: a tree's changes into a log, until a signal.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use control::shutdown::Shutdown;
use control::units::Span;
use replicate::capture::{self, Progress, Rescan};
use replicate::service::Progress as Said;
use replicate::service::capture::{
    self as service, Captured, INTERVAL, Recorder, Settings, unfinished,
};
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
        let mut recorder = Recorder::begin(&self.settings()).map_err(super::failure)?;
        let mut ready = false;
        let mut shown = Instant::now();
        while !shutdown.wait(INTERVAL) {
            let captured = recorder.step().map_err(super::failure)?;
            if !ready && captured.ready {
                ready = true;
                self.announce(&captured, json)?;
            }
            if shown.elapsed() >= SHOWN && io::stderr().is_terminal() {
                shown = Instant::now();
                eprint!("\r\x1b[K{}", line(&captured.progress));
            }
        }
        let (captured, whole) = recorder.finish().map_err(super::failure)?;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        if json {
            let ended = Said::Capture(captured).object();
            exit::print(&format!("{}\n", json!({ "ended": ended })))?;
        } else {
            exit::print(&format!("{}\n", line(&captured.progress)))?;
        }
        match whole {
            true => Ok(()),
            false => Err(super::failure(unfinished(&captured))),
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
            allow: allow.collect(),
            check: self.check.map(|Span(round)| round),
        }
    }

    /// One line, once the log has the tree.
    fn announce(&self, captured: &Captured, json: bool) -> Result<(), Failure> {
        if json {
            let ready = Said::Capture(*captured).object();
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

fn line(progress: &Progress) -> String {
    format!(
        "epoch {}  events {}  waiting {} B  dropped {}  in doubt {}  read back {} B",
        progress.epoch,
        progress.events,
        progress.waiting,
        progress.dropped,
        progress.doubtful,
        progress.read_back
    )
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
    } = rescan;
    format!("  compared {files} files, {bytes} B: {new} new, {gone} gone, {differed} B differed")
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
        Error::Kernel { .. } => Failure::Missing(vec![(
            "capture".to_owned(),
            datapath::Missing::new(
                error.to_string(),
                "run a newer kernel, or follow a tree on ext4",
            ),
        )]),
        Error::Tree { .. } | Error::FileSystem { .. } => Failure::Input(error.to_string()),
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
