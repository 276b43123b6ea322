//! Limits the size of a log: when it has grown beyond the limit, its older part is folded on a
//! separate thread. The writer of the log neither waits for that nor fails because of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Error, STEP};
use crate::log::{self, CompactionReport, DiskUsage, Options, compact_while, foldable};

/// How often the size is checked, and the delay after an error.
const LOOKS: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(60);
/// The smallest limit, in bytes.
const MIN_SIZE: u64 = 1 << 20;
/// The number of segments into which the limit is divided. A fold ends at the end of a segment.
const SEGMENTS: u64 = 8;

/// A log whose size is limited. Dropping it ends that.
#[derive(Debug)]
pub struct Keep {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    end: AtomicBool,
    /// Whether another part has to read the whole log first.
    held: AtomicBool,
}

/// The state of the thread.
#[derive(Debug)]
struct Keeping {
    shared: Arc<Shared>,
    log: PathBuf,
    bytes: u64,
    /// The size at which nothing could be folded. It is not tried again before the log has grown.
    tried: Option<u64>,
}

/// # Errors
/// [`Error::Input`] for a limit that is too small.
pub(super) fn check(keep: Option<u64>) -> Result<(), Error> {
    match keep {
        Some(bytes) if bytes < MIN_SIZE => {
            Err(Error::Input(format!("keep {bytes} B: 1 MiB at least")))
        }
        _ => Ok(()),
    }
}

/// The segment size of a log with this limit.
pub(super) fn segment(keep: Option<u64>) -> u64 {
    let usual = Options::default().segment;
    keep.map_or(usual, |bytes| usual.min(bytes / SEGMENTS))
}

impl Keep {
    /// # Errors
    /// [`Error::Thread`]
    pub fn begin(log: &Path, bytes: u64) -> Result<Self, Error> {
        let shared = Arc::<Shared>::default();
        let keeping = Keeping {
            shared: Arc::clone(&shared),
            log: log.to_owned(),
            bytes,
            tried: None,
        };
        let thread = thread::Builder::new().name("keep".to_owned());
        let thread = thread.spawn(move || keeping.work());
        Ok(Self {
            shared,
            thread: Some(thread.map_err(Error::Thread)?),
        })
    }

    /// Starts no fold while another part reads the whole log, because the fold would overtake it.
    pub(super) fn hold(&self, held: bool) {
        self.shared.held.store(held, Ordering::Relaxed);
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    fn wait(&self, at_most: Duration) {
        let begun = Instant::now();
        while !self.ended() && begun.elapsed() < at_most {
            thread::sleep(STEP);
        }
    }
}

impl Keeping {
    fn work(mut self) {
        let mut said = String::new();
        let log = self.log.display().to_string();
        while !self.shared.ended() {
            let wait = match self.look() {
                Ok(None) => LOOKS,
                Ok(Some(CompactionReport {
                    epoch,
                    before,
                    after,
                })) => {
                    said.clear();
                    tracing::info!(
                        "{log}: epochs before {epoch} are folded: {before} B became {after} B"
                    );
                    LOOKS
                }
                Err(_) if self.shared.ended() => return,
                Err(error) => {
                    let text = error.to_string();
                    if text != said {
                        tracing::warn!("keeping {log} to {} B: {text}; trying again", self.bytes);
                        said = text;
                    }
                    INTERVAL
                }
            };
            self.shared.wait(wait);
        }
    }

    /// Folds the part beyond the limit, if there is one and it can be folded.
    fn look(&mut self) -> Result<Option<CompactionReport>, log::Error> {
        if self.shared.held.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let stored = DiskUsage::of(&self.log)?;
        let tried = self.tried.unwrap_or(u64::MAX);
        let grown = tried.saturating_add(self.bytes / SEGMENTS);
        if !is_due(&stored, self.bytes) || (tried..grown).contains(&stored.bytes) {
            return Ok(None);
        }
        let shared = &self.shared;
        let compacted = match foldable(&self.log, stays(self.bytes))? {
            Some(epoch) => match compact_while(&self.log, epoch, &mut |_| !shared.ended()) {
                // The tree alone is as large as the part that would be folded.
                Err(log::Error::Compact { .. }) => None,
                done => Some(done?),
            },
            None => None,
        };
        self.tried = compacted.is_none().then_some(stored.bytes);
        Ok(compacted)
    }
}

/// How many bytes remain unfolded, for slow replicas and for requests of earlier epochs.
fn stays(bytes: u64) -> u64 {
    bytes / 2
}

/// Whether the log is too large, and the part to fold is at least as large as the base. The base is
/// read and written again each time, so a tree that is larger than the limit is not copied for
/// every small change.
fn is_due(stored: &DiskUsage, bytes: u64) -> bool {
    let behind = stored.bytes.saturating_sub(stored.base);
    stored.bytes > bytes && behind >= stays(bytes).saturating_add(stored.base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(base: u64, behind: u64) -> DiskUsage {
        DiskUsage {
            bytes: base + behind,
            base,
            first_epoch: None,
        }
    }

    #[test]
    fn it_is_due_when_the_log_is_too_large_and_as_much_is_new_as_is_folded() {
        for (base, behind, due) in [
            (0, 1000, false),
            (0, 1001, true),
            (100, 900, false),
            (100, 901, true),
            (400, 601, false),
            (400, 900, true),
            // The tree alone is too large.
            (5000, 500, false),
            (5000, 5499, false),
            (5000, 5500, true),
        ] {
            assert_eq!(is_due(&stored(base, behind), 1000), due, "{base} {behind}");
        }
    }

    #[test]
    fn what_is_folded_pays_for_what_is_written_again() {
        // A tree of any size, and a log that grows without end.
        for tree in [0, 100, 400, 2000, 50_000] {
            let (mut now, mut grown, mut written) = (stored(tree, 0), 0, 0);
            while grown < 1_000_000 {
                (now.bytes, grown) = (now.bytes + 10, grown + 10);
                if is_due(&now, 1000) {
                    now = stored(tree, stays(1000));
                    written += tree;
                }
                assert!(now.bytes <= 1000.max(2 * tree + 1000), "{tree} {now:?}");
            }
            assert!(written <= grown, "{tree}: {written} B written");
        }
    }
}
