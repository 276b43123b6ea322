//! `lowroad replicate capture`: a tree's changes into a log, until a signal.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use control::shutdown::Shutdown;
use replicate::capture::{self, INTERVAL, Known, Options, Progress, Rescan};
use replicate::coverage;
use replicate::log::{self, Durability, Writer};
use serde_json::json;

use super::of_log;
use crate::exit::{self, Failure};

/// How often the line on the terminal changes.
const SHOWN: Duration = Duration::from_millis(500);
/// At the end, what has happened until then is waited for at most this long.
const LAST: Duration = Duration::from_secs(30);

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
}

/// What a file system may tell nothing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Unseen {
    /// Stores through shared mappings
    Mmap,
}

impl Unseen {
    /// As the operation is called that shows it.
    fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
        }
    }
}

impl Capture {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        if self.inside()? {
            let (to, tree) = (self.to.display(), self.tree.display());
            let what = format!("{to} is in {tree}: writing the log would be a change of the tree");
            return Err(Failure::Input(what));
        }
        let options = Options {
            journal: self.journal,
            look: self.allow.contains(&Unseen::Mmap),
            ..Options::default()
        };
        // First what takes no time, and most often is the reason why it cannot be done.
        capture::Capture::check(&self.tree, options).map_err(failure)?;
        self.warn()?;
        self.check()?;
        let (mut log, mut capture) = self.begin(options)?;
        let mut ready = false;
        let mut shown = Instant::now();
        while !shutdown.wait(INTERVAL) {
            let progress = log.follow(|mut take| capture.poll(&mut take))?;
            let progress = log.numbered(progress);
            if !ready && progress.epoch > log.before {
                ready = true;
                self.announce(&progress, json)?;
            }
            if shown.elapsed() >= SHOWN && io::stderr().is_terminal() {
                shown = Instant::now();
                eprint!("\r\x1b[K{}", line(&progress));
            }
        }
        let whole = log.follow(|mut take| capture.catch_up(LAST, &mut take))?;
        let progress = log.numbered(capture.progress());
        drop(capture);
        log.writer.sync().map_err(of_log)?;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        if json {
            exit::print(&format!("{}\n", json!({ "ended": object(&progress) })))?;
        } else {
            exit::print(&format!("{}\n", line(&progress)))?;
        }
        if whole {
            return Ok(());
        }
        let seconds = LAST.as_secs();
        Err(Failure::Failed(anyhow!(
            "no epoch has the last changes after {seconds} s: the log ends with epoch {}",
            progress.epoch
        )))
    }

    /// Tries whether all that a program may do is seen here.
    fn check(&self) -> Result<(), Failure> {
        let seen = match coverage::quick(&self.tree) {
            Ok(seen) => seen,
            Err(coverage::Error::Place { path, cause }) => {
                let place = path.display();
                tracing::warn!("what is seen here cannot be tried: {place}: {cause}");
                return Ok(());
            }
            Err(error) => return Err(super::coverage::failure(error)),
        };
        if seen.copies == Some(false) {
            tracing::warn!("the page cache cannot be copied here: what is written is read back");
        }
        let allowed = |operation: &&str| self.allow.iter().any(|allow| allow.name() == *operation);
        let refused = seen.invisible.into_iter().filter(|name| !allowed(name));
        let refused: Vec<_> = refused
            .map(|operation| {
                let what = format!("{operation} is not seen on this file system");
                let remedy =
                    "see lowroad replicate coverage; what can be looked for, --allow names";
                ("capture".to_owned(), datapath::Missing::new(what, remedy))
            })
            .collect();
        if refused.is_empty() {
            Ok(())
        } else {
            Err(Failure::Missing(refused))
        }
    }

    /// Takes the log up where it ends, or begins it.
    fn begin(&self, options: Options) -> Result<(Log, capture::Capture), Failure> {
        if self.afresh {
            let capture = capture::Capture::start(&self.tree, options).map_err(failure)?;
            let mut log = Log::open(self)?;
            log.numbered_from = log.before;
            return Ok((log, capture));
        }
        let log = Log::open(self)?;
        let known = Known::read(&self.to).map_err(of_log)?;
        let capture = capture::Capture::resume(&self.tree, options, known).map_err(failure)?;
        Ok((log, capture))
    }

    /// Says what below the tree is not followed.
    fn warn(&self) -> Result<(), Failure> {
        let below = capture::Capture::mounted_below(&self.tree).context("what is mounted")?;
        for place in below {
            let place = place.display();
            tracing::warn!(
                "{place} is another file system, and no part of the tree: it is left out"
            );
        }
        Ok(())
    }

    /// Whether the log would be in the tree.
    fn inside(&self) -> Result<bool, Failure> {
        let tree = self.tree.canonicalize();
        let tree = tree
            .map_err(|error| Failure::Input(format!("--tree {}: {error}", self.tree.display())))?;
        // The folder may have to be made yet: the first that is there says where it will be.
        let there = self.to.ancestors().find_map(|folder| match folder {
            folder if folder.as_os_str().is_empty() => PathBuf::from(".").canonicalize().ok(),
            folder => folder.canonicalize().ok(),
        });
        Ok(there.is_some_and(|there| there.starts_with(&tree)))
    }

    /// One line, once the log has the tree.
    fn announce(&self, progress: &Progress, json: bool) -> Result<(), Failure> {
        if json {
            exit::print(&format!("{}\n", json!({ "ready": object(progress) })))?;
        } else {
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

/// The log that is written, and the first thing that went wrong with it.
struct Log {
    writer: Writer,
    /// The last epoch that it had.
    before: u64,
    /// The capture's first epoch is the next.
    numbered_from: u64,
    failed: Option<log::Error>,
}

impl Log {
    fn open(asked: &Capture) -> Result<Self, Failure> {
        // Epochs that come together are on the disk with one sync.
        let options = log::Options {
            durability: Durability::OnRequest,
            ..log::Options::default()
        };
        let writer = Writer::open(&asked.to, options).map_err(of_log)?;
        Ok(Self {
            before: writer.epoch(),
            numbered_from: 0,
            writer,
            failed: None,
        })
    }

    /// With the epoch as the log numbers it.
    fn numbered(&self, progress: Progress) -> Progress {
        let epoch = self.numbered_from + progress.epoch;
        Progress { epoch, ..progress }
    }

    /// Writes what a step of the capture says; its epochs are on the disk afterwards.
    fn follow<T>(
        &mut self,
        step: impl FnOnce(&mut dyn FnMut(replicate::record::Entry)) -> Result<T, capture::Error>,
    ) -> Result<T, Failure> {
        use replicate::record::Entry;
        let Self {
            writer,
            numbered_from,
            failed,
            ..
        } = self;
        let before = writer.epoch();
        let done = step(&mut |entry| {
            let entry = match entry {
                Entry::Epoch { number } => Entry::Epoch {
                    number: *numbered_from + number,
                },
                other => other,
            };
            if failed.is_none() {
                *failed = writer.append(now_ns(), entry).err();
            }
        });
        if failed.is_none() && writer.epoch() > before {
            *failed = writer.sync().err();
        }
        match self.failed.take() {
            Some(error) => Err(of_log(error)),
            None => done.map_err(failure),
        }
    }
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.map_or(0, |since| since.as_nanos())).unwrap_or(u64::MAX)
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

fn object(progress: &Progress) -> serde_json::Value {
    let rescan = progress.rescan.map(|rescan| {
        json!({
            "files": rescan.files,
            "new": rescan.new,
            "gone": rescan.gone,
            "read_bytes": rescan.bytes,
            "differed_bytes": rescan.differed,
        })
    });
    json!({
        "rescan": rescan,
        "epoch": progress.epoch,
        "events": progress.events,
        "waiting_bytes": progress.waiting,
        "dropped": progress.dropped,
        "doubtful_files": progress.doubtful,
        "read_back_bytes": progress.read_back,
    })
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
