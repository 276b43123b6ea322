//! Writes the records of a capture into its log.

use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime};

use super::{CaptureProgress, LAST, Open, Settings};
use crate::capture::{self, Listener, Pin, Progress};
use crate::log::{self, Durability, Writer};
use crate::record::Entry;
use crate::service::{Error, keep};
use crate::tree::Stale;

/// Receives the progress while much is read, and decides whether to end.
pub type Meanwhile<'a> = dyn FnMut(&CaptureProgress) -> bool + 'a;

/// The log being written, and the first error of writing it.
#[derive(Debug)]
pub(super) struct LogOutput {
    pub(super) writer: Writer,
    /// The last epoch that it had.
    pub(super) before: u64,
    /// The number before the capture's first epoch.
    pub(super) numbered_from: u64,
    failed: Option<log::Error>,
    /// The record of the last epoch, and since when there are changes after it.
    epoch_record: u64,
    behind: Option<Instant>,
    disk: Disk,
    /// Since when it is to end.
    ending: Option<Instant>,
}

/// Epochs that no program has requested are on the disk within this time. A sync makes concurrent
/// writers to the disk wait, and the source itself may lose unsynced data of a longer time.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// Which part of a log is on its disk.
#[derive(Debug)]
struct Disk {
    /// The last epoch on the disk, the last epoch with synced data, and the time of the last sync.
    durable: u64,
    synced: u64,
    looked: Instant,
}

impl Disk {
    fn new(durable: u64, looked: Instant) -> Self {
        Self {
            durable,
            synced: 0,
            looked,
        }
    }

    /// Whether to sync epochs up to the last one now. If so, marks them as synced.
    fn is_due(&mut self, last: u64, synced: u64, now: Instant) -> bool {
        let (asked, waits) = (synced != self.synced, last != self.durable);
        let late = waits && now.duration_since(self.looked) >= SYNC_INTERVAL;
        if asked || late {
            (self.durable, self.synced, self.looked) = (last, synced, now);
        }
        waits && (asked || late)
    }
}

/// A step of the capture, written to the log.
pub(super) struct Step<'a, 'b> {
    written: &'a mut LogOutput,
    meanwhile: &'a mut Meanwhile<'b>,
}

impl LogOutput {
    pub(super) fn open(settings: &Settings) -> Result<Self, Error> {
        // Epochs that come together share one sync.
        let options = log::Options {
            durability: Durability::OnRequest,
            segment: keep::segment(settings.keep),
        };
        let writer = Writer::open(&settings.log, options)?;
        Ok(Self {
            before: writer.epoch(),
            numbered_from: 0,
            failed: None,
            epoch_record: writer.number(),
            behind: None,
            disk: Disk::new(writer.epoch(), Instant::now()),
            ending: None,
            writer,
        })
    }

    /// Detaches the journals that earlier captures have left, wherever they are.
    pub(super) fn unpin(settings: &Settings) -> Result<(), Error> {
        let removed = Pin::remove_others(&settings.log, settings.pin.as_deref());
        let removed = removed.map_err(|(folder, cause)| capture::Error::Pin {
            folder,
            cause: cause.to_string(),
        })?;
        for place in removed {
            let place = place.display();
            tracing::info!(
                "{place}: this journal of the log is not kept any more: its programs are detached"
            );
        }
        Ok(())
    }

    pub(super) fn reached(&mut self, progress: Progress) -> CaptureProgress {
        let epoch = self.numbered_from + progress.epoch;
        let number = self.writer.number();
        let lag_records = number - self.epoch_record;
        if lag_records == 0 && progress.waiting == 0 {
            self.behind = None;
        } else {
            self.behind.get_or_insert_with(Instant::now);
        }
        CaptureProgress {
            progress: Progress { epoch, ..progress },
            number,
            ready: epoch > self.before,
            lag_records,
            lag: self
                .behind
                .map_or(Duration::ZERO, |since| since.elapsed())
                .max(progress.held.unwrap_or_default()),
            checked: None,
            pressure: None,
            open: Open::default(),
            stale: Stale::default(),
        }
    }

    /// Syncs epochs that contain data that a program has synced, and others at intervals.
    ///
    /// # Errors
    /// [`Error::Log`]
    pub(super) fn keep(&mut self, progress: Progress) -> Result<(), Error> {
        let last = self.writer.epoch();
        if self.disk.is_due(last, progress.synced, Instant::now()) {
            self.writer.sync()?;
        }
        Ok(())
    }

    /// Writes the records of a step of the capture.
    pub(super) fn follow<T>(
        &mut self,
        meanwhile: &mut Meanwhile<'_>,
        step: impl FnOnce(&mut Step<'_, '_>) -> Result<T, capture::Error>,
    ) -> Result<T, Error> {
        let done = step(&mut Step {
            written: self,
            meanwhile,
        });
        match self.failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(done?),
        }
    }

    /// Whether to abort: at once while the log does not have the whole tree, otherwise after a
    /// while.
    fn breaks_off(&mut self, ending: bool, ready: bool) -> bool {
        if !ending {
            return false;
        }
        let since = self.ending.get_or_insert_with(Instant::now);
        !ready || since.elapsed() > LAST
    }
}

impl Listener for Step<'_, '_> {
    fn take(&mut self, entry: Entry) {
        let LogOutput {
            writer,
            numbered_from,
            failed,
            epoch_record,
            behind,
            ..
        } = &mut *self.written;
        let (entry, epoch) = match entry {
            Entry::Epoch { number } => {
                let number = *numbered_from + number;
                (Entry::Epoch { number }, true)
            }
            other => (other, false),
        };
        if failed.is_some() {
            return;
        }
        match writer.append(now_ns(), entry) {
            Ok(number) if epoch => (*epoch_record, *behind) = (number, None),
            Ok(_) => {}
            Err(error) => *failed = Some(error),
        }
    }

    fn meanwhile(&mut self, progress: &Progress) -> ControlFlow<()> {
        let captured = self.written.reached(*progress);
        let ending = (self.meanwhile)(&captured);
        let breaks_off = self.written.breaks_off(ending, captured.ready);
        // What cannot be written any more need not be read.
        match breaks_off || self.written.failed.is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Nanoseconds since 1970.
pub(in crate::service) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.map_or(0, |since| since.as_nanos())).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_that_nobody_asked_for_are_on_the_disk_within_a_time_and_others_at_once() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut disk = Disk::new(3, begun);
        for (ms, last, synced, due) in [
            (0, 3, 0, false),
            (1, 4, 0, false),
            (199, 5, 0, false),
            (200, 5, 0, true),
            // There is nothing more.
            (900, 5, 0, false),
            // The last time was long ago.
            (1000, 6, 0, true),
            (1199, 7, 0, false),
            (1200, 8, 0, true),
            // The next epoch contains what a program has synced.
            (1201, 9, 1, true),
            // And again, when it was on the disk.
            (1202, 9, 2, false),
            (1203, 10, 2, false),
            (1402, 10, 2, true),
        ] {
            assert_eq!(disk.is_due(last, synced, at(ms)), due, "after {ms} ms");
        }
    }
}
