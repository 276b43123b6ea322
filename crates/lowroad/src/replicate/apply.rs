//! `lowroad replicate apply`: keeps the tree of a replica up to date from a log.
#![expect(clippy::print_stderr, reason = "the progress line")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Args;
use process::shutdown::Shutdown;
use replicate::apply::{Gate, Options};
use replicate::log;
use replicate::service::apply::{Applying, Done, Settings};
use replicate::service::{Progress as PartProgress, STEP};
use serde_json::json;

use crate::exit::{self, Failure, OrFail as _};

/// Interval between changes of the progress line.
const REFRESH: Duration = Duration::from_millis(500);
/// How long a signal may wait for attention.
const TICK: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(super) struct Apply {
    /// Folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Folder of the replica, created if necessary; its files are in the directory `tree`
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Apply further epochs as they arrive, until SIGINT or SIGTERM
    #[arg(long)]
    follow: bool,
    /// Stop at this epoch
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    epoch: Option<u64>,
    /// Build the whole tree again, and replace the existing one with it
    #[arg(long)]
    fresh: bool,
    /// Compare all bytes of the tree that is there with the log, and make again what differs: for a replica that
    /// cannot go on, or was promoted, and for an earlier source that was moved to `tree`
    #[arg(long, conflicts_with_all = ["fresh", "repair"])]
    resync: bool,
    /// Undo foreign changes to the replica; added files are removed
    #[arg(long)]
    repair: bool,
    /// Change files of at least this many bytes in place, instead of copying them; programs that have one
    /// open see its bytes change
    #[arg(long, value_name = "BYTES")]
    in_place: Option<u64>,
    /// Refuse epochs whose files have more bytes in total
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Refuse epochs with more names
    #[arg(long, value_name = "N")]
    max_files: Option<u64>,
    /// Apply an epoch that removes more than half of the replica's files, and more than 100
    #[arg(long)]
    allow_delete: bool,
    /// Also make device nodes, set-user-ID and set-group-ID bits, and extended attributes other than
    /// `user.`
    #[arg(long)]
    privileged: bool,
}

impl Apply {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        if !self.follow {
            log::check(&self.folder)?;
        }
        let gate = Gate::closable();
        let signals = SignalWatch::watch(shutdown, &gate);
        let shutdown = &signals.shutdown;
        let mut applying = self.settings(&gate).start()?;
        let mut reporter = Reporter::default();
        loop {
            while self.step(&mut applying, &mut reporter)? {
                self.report(applying.done(), &mut reporter, json)?;
                // The log may grow all the time, so without an epoch to reach one step is enough.
                let reached = !self.follow && self.epoch.is_none();
                if reached || shutdown.requested() {
                    break;
                }
            }
            if !self.follow {
                break;
            }
            applying.wait(STEP)?;
            if shutdown.requested() {
                break;
            }
        }
        if io::stderr().is_terminal() && self.follow {
            eprint!("\r\x1b[K");
        }
        signals.over();
        let done = applying.finish()?;
        let epoch = done.last.epoch;
        match self.epoch {
            Some(wanted) if wanted != epoch => {
                let folder = self.folder.display();
                return Err(Failure::Input(match epoch {
                    0 => format!(
                        "{folder} has no epoch {wanted}: `lowroad replicate epochs` lists those it has"
                    ),
                    _ => format!(
                        "{folder} has no epoch {wanted} after {epoch}, of which the replica is"
                    ),
                }));
            }
            _ if epoch == 0 && !self.follow => {
                return Err(log::Error::NoEpochs(self.folder.clone()).into());
            }
            _ => {}
        }
        let text = if json {
            json!({ "ended": PartProgress::Apply(done).object() }).to_string()
        } else {
            line(&done)
        };
        exit::print(&format!("{text}\n"))
    }

    /// Does one step. With `--follow`, a step without enough space is reported once and retried.
    fn step(&self, applying: &mut Applying, reporter: &mut Reporter) -> Result<bool, Failure> {
        if !self.follow {
            return Ok(applying.step(self.epoch)?);
        }
        let stepped = applying.follow()?;
        match &applying.done().hold {
            Some(hold) if hold.deletes => Err(Failure::Input(hold.why.clone())),
            hold => {
                reporter.waiting(hold.as_ref().map(|hold| hold.why.as_str()));
                Ok(stepped)
            }
        }
    }

    fn settings(&self, gate: &Gate) -> Settings {
        Settings {
            log: self.folder.clone(),
            to: self.to.clone(),
            options: Options {
                privileged: self.privileged,
                fresh: self.fresh,
                resync: self.resync,
                repair: self.repair,
                in_place: self.in_place,
                max_bytes: self.max_bytes,
                max_files: self.max_files,
                allow_delete: self.allow_delete,
                gate: gate.clone(),
            },
            anew: false,
            check: None,
        }
    }

    /// Reports each epoch that the replica shows, if it follows the log.
    fn report(&self, done: &Done, reporter: &mut Reporter, json: bool) -> Result<(), Failure> {
        if !self.follow {
            return Ok(());
        }
        let first = done.steps == 1;
        if json {
            let what = if first { "ready" } else { "applied" };
            let object = PartProgress::Apply(done.clone()).object();
            exit::print(&format!("{}\n", json!({ what: object })))?;
        } else if first {
            let (to, log, epoch) = (self.to.display(), self.folder.display(), done.last.epoch);
            exit::print(&format!("ready  replica {to}  log {log}  epoch {epoch}\n"))?;
        } else if reporter.at.is_none_or(|at| at.elapsed() >= REFRESH) && io::stderr().is_terminal()
        {
            reporter.at = Some(Instant::now());
            eprint!("\r\x1b[K{}", line(done));
        }
        if first {
            control::ready::notify().context("notifying the service manager")?;
        }
        Ok(())
    }
}

/// Aborts a step in progress when a signal arrives.
#[derive(Debug)]
pub(super) struct SignalWatch {
    shutdown: Arc<Shutdown>,
    gate: Gate,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl SignalWatch {
    pub(super) fn watch(shutdown: Shutdown, gate: &Gate) -> Self {
        let shutdown = Arc::new(shutdown);
        let over = Arc::<AtomicBool>::default();
        let thread = {
            let (shutdown, gate, over) = (Arc::clone(&shutdown), gate.clone(), Arc::clone(&over));
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if shutdown.wait(TICK) {
                        return gate.close();
                    }
                }
            })
        };
        Self {
            shutdown,
            gate: gate.clone(),
            over,
            thread,
        }
    }

    /// Ends the watch. No step is in progress any more, so what follows is completed in any case.
    pub(super) fn over(self) {
        self.over.store(true, Ordering::Relaxed);
        // A thread that panicked has printed its message.
        let _ = self.thread.join();
        self.gate.reopen();
    }
}

/// The output on standard error.
#[derive(Debug, Default)]
struct Reporter {
    /// When the progress line was last written.
    at: Option<Instant>,
    /// The last reported reason for waiting.
    waiting: Option<String>,
}

impl Reporter {
    fn waiting(&mut self, now: Option<&str>) {
        if self.waiting.as_deref() != now {
            self.waiting = now.map(str::to_owned);
            if let Some(why) = now {
                tracing::warn!("waiting: {why}");
            }
        }
    }
}

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
        ("without names", left.names),
        ("without times", left.times),
    ];
    for (what, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        line += &format!("  {what} {count}");
    }
    line
}
