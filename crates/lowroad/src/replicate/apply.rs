//! `lowroad replicate apply`: a replica's tree, kept up to date from a log.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use clap::Args;
use control::shutdown::Shutdown;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use replicate::apply::{Applied, Error, Options, Replica};
use replicate::log;
use replicate::ship::Watch;
use serde_json::{Value, json};

use super::of_log;
use crate::exit::{self, Failure};

/// How often the line on the terminal changes.
const SHOWN: Duration = Duration::from_millis(500);
/// Where nobody tells that a log has grown, it is looked at so often.
const LOOKED: u16 = 200;

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
        let watch = Watch::new(&self.folder)
            .map_err(|error| Failure::Input(format!("{}: {error}", self.folder.display())))?;
        let mut replica = Replica::open(&self.folder, &self.to, self.options()).map_err(failure)?;
        let mut progress = Progress::default();
        loop {
            watch.told().context("watching the log")?;
            while let Some(applied) = replica.apply(self.epoch).map_err(failure)? {
                progress.count(&applied);
                self.tell(&mut progress, json)?;
                if shutdown.requested() {
                    break;
                }
            }
            if !self.follow || waited(&shutdown, &watch) {
                break;
            }
        }
        if io::stderr().is_terminal() && self.follow {
            eprint!("\r\x1b[K");
        }
        let epoch = replica.epoch();
        replica.end().map_err(failure)?;
        match self.epoch {
            Some(asked) if asked != epoch => {
                return Err(Failure::Input(format!(
                    "{} has no epoch {asked} after {epoch}, of which the replica is",
                    self.folder.display()
                )));
            }
            _ if epoch == 0 && !self.follow => {
                let folder = self.folder.display();
                return Err(Failure::Input(format!("{folder} has no epoch yet")));
            }
            _ => {}
        }
        progress.last.epoch = epoch;
        let text = if json {
            json!({ "ended": progress.object() }).to_string()
        } else {
            progress.line()
        };
        exit::print(&format!("{text}\n"))
    }

    fn options(&self) -> Options {
        Options {
            privileged: self.privileged,
            fresh: self.fresh,
            repair: self.repair,
            in_place: self.in_place,
            max_bytes: self.max_bytes,
            max_files: self.max_files,
            ..Options::default()
        }
    }

    /// Of each epoch that the replica shows, when a program follows it.
    fn tell(&self, progress: &mut Progress, json: bool) -> Result<(), Failure> {
        if !self.follow {
            return Ok(());
        }
        if json {
            let what = if progress.steps == 1 {
                "ready"
            } else {
                "applied"
            };
            exit::print(&format!("{}\n", json!({ what: progress.object() })))?;
        } else if progress.steps == 1 {
            let (to, log, epoch) = (
                self.to.display(),
                self.folder.display(),
                progress.last.epoch,
            );
            exit::print(&format!("ready  replica {to}  log {log}  epoch {epoch}\n"))?;
        } else if progress.shown.is_none_or(|shown| shown.elapsed() >= SHOWN)
            && io::stderr().is_terminal()
        {
            progress.shown = Some(Instant::now());
            eprint!("\r\x1b[K{}", progress.line());
        }
        if progress.steps == 1 {
            control::ready::notify().context("telling that it follows")?;
        }
        Ok(())
    }
}

/// Until the log may have grown; true if a signal came first.
fn waited(shutdown: &Shutdown, watch: &Watch) -> bool {
    let readable = PollFlags::POLLIN;
    let mut asked = [
        PollFd::new(shutdown.as_fd(), readable),
        PollFd::new(watch.as_fd(), readable),
    ];
    let _ = poll(&mut asked, PollTimeout::from(LOOKED));
    shutdown.requested()
}

/// All that was done since the start.
#[derive(Debug, Default)]
struct Progress {
    steps: u64,
    names: u64,
    bytes: u64,
    repaired: u64,
    /// Between the last epoch's record and its being shown.
    lag: Duration,
    last: Applied,
    shown: Option<Instant>,
}

impl Progress {
    fn count(&mut self, applied: &Applied) {
        self.steps += 1;
        self.names += applied.names;
        self.bytes += applied.bytes;
        self.repaired += applied.repaired;
        let written = SystemTime::UNIX_EPOCH + Duration::from_nanos(applied.at_ns);
        self.lag = written.elapsed().unwrap_or_default();
        self.last = *applied;
    }

    fn line(&self) -> String {
        let mut line = format!(
            "epoch {}  steps {}  names {}  bytes {}",
            self.last.epoch, self.steps, self.names, self.bytes
        );
        if self.steps > 0 {
            line += &format!("  lag {} ms", self.lag.as_millis());
        }
        let left = self.last.left;
        let counts = [
            ("repaired", self.repaired),
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

    fn object(&self) -> Value {
        let left = self.last.left;
        json!({
            "epoch": self.last.epoch,
            "record": self.last.record,
            "steps": self.steps,
            "names": self.names,
            "bytes": self.bytes,
            "repaired": self.repaired,
            "lag_ms": self.lag.as_secs_f64() * 1e3,
            "left": {
                "owners": left.owners,
                "devices": left.devices,
                "set_id": left.set_id,
                "extended_attributes": left.extended,
            },
        })
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Log(log @ log::Error::Damaged { .. }) => Failure::Input(log.to_string()),
        Error::Log(log) => of_log(log),
        Error::Occupied(_)
        | Error::OtherLog { .. }
        | Error::Behind { .. }
        | Error::Quota { .. } => Failure::Input(error.to_string()),
        failed => Failure::Failed(failed.into()),
    }
}
