//! Two copies of the tables of prefixes on a device: lookups read one while the other catches up, so
//! that each batch is answered from before or from after a change, and no lookup waits for one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu::{Buffer, Device};
use lpm::{NextHop, Prefix4, Prefix6};

use super::Error;
use super::original::{CHUNK, Original};

#[derive(Debug)]
pub(super) struct Copies {
    device: Device,
    original: Original,
    current: Copy,
    spare: Copy,
    caught_up: CaughtUp,
}

/// What batches paid so that a device's copy of the routes has changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaughtUp {
    /// Batches that paid.
    pub times: u64,
    /// Written to the device.
    pub bytes: u64,
    pub took: Duration,
}

#[derive(Debug)]
struct Copy {
    /// Held by whoever looks up in it.
    buffer: Arc<Buffer>,
    /// Chunks in which it is not what it is to be.
    behind: Vec<usize>,
}

impl Copies {
    pub(super) fn new(device: &Device, original: Original) -> Result<Self, Error> {
        let copy = || {
            let mut buffer = device.buffer(original.bytes().len())?;
            device.write(&mut buffer, 0, original.bytes())?;
            Ok::<_, Error>(Copy {
                buffer: Arc::new(buffer),
                behind: Vec::new(),
            })
        };
        Ok(Self {
            device: device.clone(),
            current: copy()?,
            spare: copy()?,
            caught_up: CaughtUp::default(),
            original,
        })
    }

    pub(super) fn original(&self) -> &Original {
        &self.original
    }

    pub(super) fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        self.original.route4(prefix, hop)
    }

    pub(super) fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        self.original.route6(prefix, hop)
    }

    /// Whether there are changes that no copy has yet.
    pub(super) fn is_behind(&self) -> bool {
        self.original.is_changed()
    }

    /// What it took so far.
    pub(super) fn caught_up(&self) -> CaughtUp {
        self.caught_up
    }

    /// The tables with all changes, for a batch; without the last ones while batches in other threads
    /// still read the other copy.
    pub(super) fn latest(&mut self) -> Result<Arc<Buffer>, Error> {
        if self.original.is_changed()
            && let Some(buffer) = Arc::get_mut(&mut self.spare.buffer)
        {
            let started = Instant::now();
            let changed = self.original.refresh();
            self.current.behind.extend(&changed);
            self.spare.behind.extend(changed);
            let behind = &mut self.spare.behind;
            behind.sort_unstable();
            behind.dedup();
            for run in behind.chunk_by(|one, next| one + 1 == *next) {
                let bytes = run[0] * CHUNK..(run[run.len() - 1] + 1) * CHUNK;
                self.caught_up.bytes += bytes.len() as u64;
                self.device
                    .write(buffer, bytes.start, &self.original.bytes()[bytes])?;
            }
            behind.clear();
            std::mem::swap(&mut self.current, &mut self.spare);
            self.caught_up.times += 1;
            self.caught_up.took += started.elapsed();
        }
        Ok(Arc::clone(&self.current.buffer))
    }
}
