//! Writes at a steady rate, each with its number in it, and when each is seen in the copies.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sys::clock::monotonic_ns;
use sys::sched::{exact_timers, sleep_until};

/// Places in the files, which are written to in turn.
pub(super) const PLACES: u64 = 1000;
/// The last of the time before a write is spun away: sleeps end late.
const SPIN_NS: u64 = 70_000;
/// The interval at which one copy is polled. A poll takes some microseconds, so several copies are polled less often.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// A copy without a write after this time never gets it.
const TIMEOUT_NS: u64 = 60_000_000_000;

/// Writes at a constant rate. Their numbers begin with 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteLoad {
    /// Bytes of a write.
    pub(super) size: usize,
    /// How many files the places are in.
    pub(super) files: u64,
    pub(super) rate: u64,
    /// So many writes are followed by an fsync; none is, where it is zero.
    pub(super) sync: u64,
}

/// When things happened, in nanoseconds of the monotonic clock.
#[derive(Debug)]
pub(super) struct Observations {
    /// When each write had returned, with the fsync that followed it.
    returned: Vec<u64>,
    /// For each copy, when it had each write and all before it.
    copies: Vec<Vec<u64>>,
    /// How much later than the schedule a write began although the one before had returned.
    late: Vec<u64>,
}

impl WriteLoad {
    /// Writes to every place once, as fast as it goes.
    pub(super) fn fill(&self, tree: &Path) -> Result<()> {
        let files = self.open(tree)?;
        (1..=PLACES).try_for_each(|number| self.write(&files, number))
    }

    /// Writes these numbers, and returns when every copy has them.
    pub(super) fn run(
        &self,
        tree: &Path,
        copies: &[PathBuf],
        first: u64,
        count: u64,
    ) -> Result<Observations> {
        let returned: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let failed = AtomicBool::new(false);
        let (late, copies) = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let late = self.pace(tree, first, &returned);
                failed.store(late.is_err(), Ordering::Relaxed);
                late
            });
            let seen = self.observe(copies, first, &returned, &failed);
            let late = writing.join();
            (
                late.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                seen,
            )
        });
        Ok(Observations {
            late: late?,
            returned: returned.into_iter().map(AtomicU64::into_inner).collect(),
            copies: copies?,
        })
    }

    fn pace(&self, tree: &Path, first: u64, returned: &[AtomicU64]) -> Result<Vec<u64>> {
        exact_timers()?;
        let files = self.open(tree)?;
        let interval = 1_000_000_000 / self.rate;
        let mut free = monotonic_ns();
        let begun = free + interval;
        let mut late = Vec::with_capacity(returned.len());
        for (index, returned) in (0..).zip(returned) {
            let due = begun + index * interval;
            sleep_until(due.saturating_sub(SPIN_NS));
            while monotonic_ns() < due {
                std::hint::spin_loop();
            }
            late.push(monotonic_ns() - due.max(free));
            let number = first + index;
            self.write(&files, number)?;
            if self.sync > 0 && number.is_multiple_of(self.sync) {
                self.file(&files, number).sync_data()?;
            }
            free = monotonic_ns();
            returned.store(free, Ordering::Release);
        }
        Ok(late)
    }

    /// Looks at the copies from outside, until each has all.
    fn observe(
        &self,
        copies: &[PathBuf],
        first: u64,
        returned: &[AtomicU64],
        failed: &AtomicBool,
    ) -> Result<Vec<Vec<u64>>> {
        exact_timers()?;
        let count = returned.len();
        let mut seen: Vec<Vec<u64>> = copies.iter().map(|_| Vec::with_capacity(count)).collect();
        let pause = POLL_INTERVAL * u32::try_from(copies.len()).unwrap_or(1);
        let mut last = monotonic_ns();
        while seen.iter().any(|seen| seen.len() < count) {
            for (copy, seen) in copies.iter().zip(&mut seen) {
                while seen.len() < count && self.has(copy, first + seen.len() as u64)? {
                    last = monotonic_ns();
                    seen.push(last);
                }
            }
            if failed.load(Ordering::Relaxed) {
                break;
            }
            if monotonic_ns() - last > TIMEOUT_NS {
                bail!(
                    "a copy lacks what was written {} s ago",
                    TIMEOUT_NS / 1_000_000_000
                );
            }
            thread::sleep(pause);
        }
        Ok(seen)
    }

    /// Whether a copy has this write, or a later one to the same place.
    fn has(&self, copy: &Path, number: u64) -> Result<bool> {
        let (name, offset) = self.place(number);
        let path = copy.join(name.to_string());
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let mut found = [0; 8];
        file.read_exact_at(&mut found, offset)?;
        Ok(u64::from_le_bytes(found) >= number)
    }

    fn write(&self, files: &[File], number: u64) -> Result<()> {
        let mut bytes = vec![number.to_le_bytes()[0]; self.size];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let (_, offset) = self.place(number);
        Ok(self.file(files, number).write_all_at(&bytes, offset)?)
    }

    fn file<'a>(&self, files: &'a [File], number: u64) -> &'a File {
        let (index, _) = self.place(number);
        &files[usize::try_from(index).unwrap_or(0)]
    }

    /// The file of a write, and its place in the file.
    fn place(&self, number: u64) -> (u64, u64) {
        let place = (number - 1) % PLACES;
        (place % self.files, place / self.files * self.size as u64)
    }

    fn open(&self, tree: &Path) -> Result<Vec<File>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let opened = (0..self.files).map(|name| options.open(tree.join(name.to_string())));
        Ok(opened.collect::<Result<_, _>>()?)
    }
}

impl Observations {
    /// How long each write took from its return until a copy had it: a list for each copy, in
    /// nanoseconds, shortest first.
    pub(super) fn lags(&self) -> Vec<Vec<u64>> {
        let of_copy = |seen: &Vec<u64>| {
            let pairs = seen.iter().zip(&self.returned);
            let mut lags: Vec<u64> = pairs.map(|(seen, at)| seen.saturating_sub(*at)).collect();
            lags.sort_unstable();
            lags
        };
        self.copies.iter().map(of_copy).collect()
    }

    /// The lateness that this share of the writes does not exceed, in nanoseconds.
    pub(super) fn late(&self, share: f64) -> u64 {
        let mut late = self.late.clone();
        late.sort_unstable();
        quantile(&late, share)
    }
}

/// A quantile of sorted values.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a place in a list"
)]
pub(super) fn quantile(sorted: &[u64], share: f64) -> u64 {
    let place = (sorted.len() as f64 * share) as usize;
    let last = sorted.len().saturating_sub(1);
    sorted.get(place.min(last)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE_LOAD: WriteLoad = WriteLoad {
        size: 16,
        files: 3,
        rate: 10_000,
        sync: 1,
    };

    #[test]
    fn a_copy_has_what_was_written_to_it_and_nothing_else() {
        let tree = tempfile::tempdir().unwrap();
        WRITE_LOAD.fill(tree.path()).unwrap();
        assert!(
            WRITE_LOAD.has(tree.path(), 1).unwrap() && WRITE_LOAD.has(tree.path(), PLACES).unwrap()
        );
        assert!(!WRITE_LOAD.has(tree.path(), PLACES + 1).unwrap());
        let copies = [tree.path().to_owned(), tree.path().to_owned()];
        let seen = WRITE_LOAD
            .run(tree.path(), &copies, PLACES + 1, 50)
            .unwrap();
        assert!(WRITE_LOAD.has(tree.path(), PLACES + 50).unwrap());
        assert!(!WRITE_LOAD.has(tree.path(), PLACES + 51).unwrap());
        let lags = seen.lags();
        assert_eq!(lags.iter().map(Vec::len).collect::<Vec<_>>(), [50, 50]);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<u64> = (0..100).collect();
        assert_eq!(quantile(&values, 0.5), 50);
        assert_eq!(quantile(&values, 0.99), 99);
        assert_eq!(quantile(&values, 1.0), 99);
    }
}
