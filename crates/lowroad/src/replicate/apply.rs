//! `lowroad replicate apply`: a replica's tree, kept up to date from a log.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use control::shutdown::Shutdown;
use replicate::apply::{Error, Options};
use replicate::log;
use replicate::service::apply::{Done, Settings};
use replicate::service::{Progress as Said, STEP};
use serde_json::json;

use super::of_log;
use crate::exit::{self, Failure};

/// How often the line on the terminal changes.
const SHOWN: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Apply {
    /// The folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The replica, made if there is none; what is to be read of it is in its directory `tree`
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Apply further epochs as they come, until SIGINT or SIGTERM
    #[arg(long)]
    follow: bool,
    /// Go on to this epoch, and not further
    #[arg(long, value_name = "NUMBER", conflicts_with = "follow")]
    epoch: Option<u64>,
    /// Make the whole tree anew, and put it in the place of the one that is there
    #[arg(long)]
    fresh: bool,
    /// Put right what somebody else changed in the replica; what he added is removed
    #[arg(long)]
    repair: bool,
    /// Change files of at least this many bytes where they are, instead of copying them: who has one
    /// open sees its bytes change
    #[arg(long, value_name = "BYTES")]
    in_place: Option<u64>,
    /// Refuse epochs whose files together have more bytes
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Refuse epochs that have more names
    #[arg(long, value_name = "NUMBER")]
    max_files: Option<u64>,
    /// Also make device nodes, set-user-ID and set-group-ID bits, and extended attributes other than
    /// `user.`
    #[arg(long)]
    privileged: bool,
}

impl Apply {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let mut applying = self.settings().start().map_err(super::failure)?;
        let mut shown = Shown::default();
        loop {
            while applying.step(self.epoch).map_err(super::failure)? {
                self.tell(applying.done(), &mut shown, json)?;
                // What is written meanwhile may be more each time.
                let reached = !self.follow && self.epoch.is_none();
                if reached || shutdown.requested() {
                    break;
                }
            }
            if !self.follow {
                break;
            }
            applying.wait(STEP).map_err(super::failure)?;
            if shutdown.requested() {
                break;
            }
        }
        if io::stderr().is_terminal() && self.follow {
            eprint!("\r\x1b[K");
        }
        let done = applying.finish().map_err(super::failure)?;
        let epoch = done.last.epoch;
        match self.epoch {
            Some(asked) if asked != epoch => {
                let folder = self.folder.display();
                return Err(Failure::Input(match epoch {
                    0 => format!(
                        "{folder} has no epoch {asked}: `lowroad replicate log` lists those it has"
                    ),
                    _ => format!(
                        "{folder} has no epoch {asked} after {epoch}, of which the replica is"
                    ),
                }));
            }
            _ if epoch == 0 && !self.follow => {
                let folder = self.folder.display();
                return Err(Failure::Input(format!("{folder} has no epoch yet")));
            }
            _ => {}
        }
        let text = if json {
            json!({ "ended": Said::Apply(done).object() }).to_string()
        } else {
            line(&done)
        };
        exit::print(&format!("{text}\n"))
    }

    fn settings(&self) -> Settings {
        Settings {
            log: self.folder.clone(),
            to: self.to.clone(),
            options: Options {
                privileged: self.privileged,
                fresh: self.fresh,
                repair: self.repair,
                in_place: self.in_place,
                max_bytes: self.max_bytes,
                max_files: self.max_files,
                ..Options::default()
            },
            anew: false,
            check: None,
        }
    }

    /// Of each epoch that the replica shows, when a program follows it.
    fn tell(&self, done: &Done, shown: &mut Shown, json: bool) -> Result<(), Failure> {
        if !self.follow {
            return Ok(());
        }
        let first = done.steps == 1;
        if json {
            let what = if first { "ready" } else { "applied" };
            let object = Said::Apply(*done).object();
            exit::print(&format!("{}\n", json!({ what: object })))?;
        } else if first {
            let (to, log, epoch) = (self.to.display(), self.folder.display(), done.last.epoch);
            exit::print(&format!("ready  replica {to}  log {log}  epoch {epoch}\n"))?;
        } else if shown.0.is_none_or(|shown| shown.elapsed() >= SHOWN) && io::stderr().is_terminal()
        {
            shown.0 = Some(Instant::now());
            eprint!("\r\x1b[K{}", line(done));
        }
        if first {
            control::ready::notify().context("telling that it follows")?;
        }
        Ok(())
    }
}

/// When the line on the terminal was written.
#[derive(Debug, Default)]
struct Shown(Option<Instant>);

fn line(done: &Done) -> String {
    let mut line = format!(
        "epoch {}  steps {}  names {}  bytes {}",
        done.last.epoch, done.steps, done.names, done.bytes
    );
    if done.steps > 0 {
        line += &format!("  lag {} ms", done.lag.as_millis());
    }
    let left = done.left;
    let counts = [
        ("repaired", done.repaired),
        ("without owners", left.owners),
        ("without device nodes", left.devices),
        ("without set-ID bits", left.set_id),
        ("without extended attributes", left.extended),
    ];
    for (what, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        line += &format!("  {what} {count}");
    }
    line
}

pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Log(log @ log::Error::Damaged { .. }) => Failure::Input(log.to_string()),
        Error::Log(log) => of_log(log),
        Error::Occupied(_)
        | Error::Case(_)
        | Error::OtherLog { .. }
        | Error::Short { .. }
        | Error::Behind { .. }
        | Error::Quota { .. } => Failure::Input(error.to_string()),
        failed => Failure::Failed(failed.into()),
    }
}
