//! Long-running work: capturing a tree into a log, shipping and receiving a log, keeping a replica
//! up to date. A command does one of these. A [`Service`] does what its configuration lists, each
//! part in its own thread. Arguments, signals and sockets belong to the program.

mod acknowledgements;
mod api;
pub mod apply;
pub mod capture;
pub mod check;
pub mod config;
mod error;
pub mod freezer;
pub mod keep;
mod loops;
mod metrics;
mod part;
pub mod promote;
pub mod publish;
pub mod receive;
pub mod serve;
mod status;
mod supervise;
mod tip;
pub mod upstream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use control::metrics::MetricSet;

pub use api::handle;
pub use config::Config;
pub use error::Error;
pub use part::{Job, Kind, Part};
pub use status::{PartStatus, Progress, State, Status};

use acknowledgements::Acknowledgements;
use rustix::fs::Mode;
use supervise::PartState;
use tip::Tips;

use crate::folder::Folder;

/// How long a part waits for work before it checks whether it is to end.
pub const STEP: Duration = Duration::from_millis(100);
/// How long the end waits for written records to reach the other end.
const LAST: Duration = Duration::from_secs(10);
/// How often to check whether parts have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The running parts of a configuration.
#[derive(Debug)]
pub struct Service {
    parts: Vec<Arc<PartState>>,
    threads: Mutex<Vec<(Arc<PartState>, JoinHandle<()>)>>,
    ends: Arc<Ends>,
    tips: Mutex<Tips>,
}

/// Which parts are to end: first those that write logs, then those that read what was written last.
#[derive(Debug, Default)]
struct Ends {
    writers: AtomicBool,
    readers: AtomicBool,
}

impl Ends {
    fn of(&self, kind: Kind) -> &AtomicBool {
        match kind.writes_log() {
            true => &self.writers,
            false => &self.readers,
        }
    }
}

/// Checks whether this machine can run the configuration, as far as that can be known in advance.
/// The parts themselves retry after temporary errors.
///
/// # Errors
/// The error of the first capture that cannot begin here.
pub fn check(config: &Config) -> Result<(), Error> {
    config.parts.iter().try_for_each(|part| match &part.job {
        Job::Capture(settings) => match settings.check() {
            Err(error) if error.passes() => Ok(()),
            checked => checked,
        },
        _ => Ok(()),
    })
}

impl Service {
    /// Starts all parts. Returns before they are ready: see [`Self::begun`].
    ///
    /// # Errors
    /// A log's folder cannot be created, or there are no more threads.
    pub fn start(config: Config) -> Result<Self, Error> {
        for part in &config.parts {
            if part.kind().writes_log() {
                make(part.job.log())?;
            }
        }
        let mut service = Self {
            parts: Vec::new(),
            threads: Mutex::default(),
            ends: Arc::default(),
            tips: Mutex::default(),
        };
        let bounded = bounded(&config);
        for part in config.parts {
            let confirmed = bounded.get(&place(part.job.log())).cloned();
            service.begin(part, confirmed)?;
        }
        Ok(service)
    }

    fn begin(&mut self, part: Part, confirmed: Option<Arc<Acknowledgements>>) -> Result<(), Error> {
        let supervised = Arc::new(PartState::new(&part, confirmed));
        let (own, ends) = (Arc::clone(&supervised), Arc::clone(&self.ends));
        let thread = thread::Builder::new().name(part.name.clone());
        let thread = thread
            .spawn(move || own.work(part, ends.of(own.kind)))
            .map_err(Error::Thread)?;
        let threads = self.threads.get_mut();
        let threads = threads.unwrap_or_else(PoisonError::into_inner);
        threads.push((Arc::clone(&supervised), thread));
        self.parts.push(supervised);
        Ok(())
    }

    /// Whether each part has what others need of it (a log an epoch, a replica its tree), or could
    /// not continue.
    pub fn begun(&self) -> bool {
        self.parts.iter().all(|part| part.begun())
    }

    /// The parts that work but are not ready yet, and what they wait for.
    pub fn awaited(&self) -> Vec<(String, String)> {
        let awaits = |part: &Arc<PartState>| Some((part.name().to_owned(), part.awaits()?));
        self.parts.iter().filter_map(awaits).collect()
    }

    /// Whether all parts have failed and none is retried.
    pub fn over(&self) -> bool {
        self.parts.iter().all(|part| part.state() == State::Failed)
    }

    pub fn status(&self) -> Status {
        let mut tips = self.tips.lock().unwrap_or_else(PoisonError::into_inner);
        Status {
            parts: self
                .parts
                .iter()
                .map(|part| part.status(&mut tips))
                .collect(),
        }
    }

    /// Lets halted parts take their next step, which removes most of a replica's files: all such
    /// parts, or the one with this name.
    ///
    /// # Errors
    /// The part does not exist or is not halted.
    pub fn allow_delete(&self, name: Option<&str>) -> Result<Vec<String>, control::Error> {
        let named = |part: &&Arc<PartState>| name.is_none_or(|name| part.name() == name);
        let named: Vec<_> = self.parts.iter().filter(named).collect();
        let allowed = named.iter().filter(|part| part.allow_delete_once());
        let allowed: Vec<String> = allowed.map(|part| part.name().to_owned()).collect();
        match (allowed.is_empty(), name) {
            (false, _) => Ok(allowed),
            (true, Some(name)) if named.is_empty() => Err(control::Error::not_found(format!(
                "there is no part \"{name}\""
            ))),
            (true, Some(name)) => Err(control::Error::bad_request(format!(
                "{name} is not halted: there is nothing to allow"
            ))),
            (true, None) => Err(control::Error::bad_request(
                "no part is halted: there is nothing to allow",
            )),
        }
    }

    /// Collects one scrape.
    pub fn metrics(&self) -> MetricSet {
        metrics::collect(&self.status())
    }

    /// Ends all parts. Captures record what has happened until now, and received records are made
    /// durable. The other parts then have a moment to ship and apply these records. A step of an
    /// apply that takes longer is aborted.
    pub fn stop(&self) {
        for (end, writes) in [(&self.ends.writers, true), (&self.ends.readers, false)] {
            end.store(true, Ordering::Relaxed);
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            let ending = threads.extract_if(.., |(part, _)| part.kind.writes_log() == writes);
            let ending: Vec<_> = ending.collect();
            let begun = Instant::now();
            while !ending.iter().all(|(_, thread)| thread.is_finished()) {
                if begun.elapsed() > LAST {
                    ending.iter().for_each(|(part, _)| part.cut_off());
                    break;
                }
                thread::sleep(POLL_INTERVAL);
            }
            for (_, thread) in ending {
                // A thread that panicked has printed its message.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The logs of bounded captures.
fn bounded(config: &Config) -> BTreeMap<PathBuf, Arc<Acknowledgements>> {
    let bounded = config.parts.iter().filter_map(|part| match &part.job {
        Job::Capture(settings) => {
            let bounded = settings.bounded.as_ref()?;
            let confirmed = Arc::new(Acknowledgements::new(bounded.bytes / 2));
            Some((place(&settings.log), confirmed))
        }
        _ => None,
    });
    bounded.collect()
}

/// Creates the folder of a log, because a part that follows it may start before the part that
/// writes it.
fn make(folder: &Path) -> Result<(), Error> {
    let made = Folder::create(folder, Mode::RWXU).map(drop);
    made.map_err(|error| Error::Input(format!("{}: {error}", folder.display())))
}

/// The canonical form of a path, as far as it exists.
fn place(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|folder| {
        let there = match folder.as_os_str().is_empty() {
            true => Path::new(".").canonicalize(),
            false => folder.canonicalize(),
        };
        Some((there.ok()?, path.strip_prefix(folder).ok()?))
    });
    found.map_or_else(
        || path.to_owned(),
        |(there, rest)| there.components().chain(rest.components()).collect(),
    )
}
