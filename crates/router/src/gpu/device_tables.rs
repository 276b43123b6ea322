//! Two copies of the prefix tables on a device. Lookups read one while the other is updated, so that each
//! batch sees the state before or after a change, and no lookup waits for an update.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu::{Buffer, Device};
use lpm::{NextHop, Prefix4, Prefix6};

use super::Error;
use super::host_tables::{CHUNK, HostTables};

#[derive(Debug)]
pub(super) struct DeviceTables {
    device: Device,
    host: HostTables,
    current: TableCopy,
    spare: TableCopy,
    update_costs: UpdateCosts,
}

/// Costs of updating a copy of the routes on the device. The batch that finds changes pays them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCosts {
    /// Number of updates.
    pub times: u64,
    /// Bytes written to the device.
    pub bytes: u64,
    pub took: Duration,
}

#[derive(Debug)]
struct TableCopy {
    /// Batches in flight hold a reference.
    buffer: Arc<Buffer>,
    /// Chunks that differ from the host's tables.
    stale_chunks: Vec<usize>,
}

impl DeviceTables {
    pub(super) fn new(device: &Device, host: HostTables) -> Result<Self, Error> {
        let copy = || {
            let mut buffer = device.buffer(host.bytes().len())?;
            device.write(&mut buffer, 0, host.bytes())?;
            Ok::<_, Error>(TableCopy {
                buffer: Arc::new(buffer),
                stale_chunks: Vec::new(),
            })
        };
        Ok(Self {
            device: device.clone(),
            current: copy()?,
            spare: copy()?,
            update_costs: UpdateCosts::default(),
            host,
        })
    }

    pub(super) fn host(&self) -> &HostTables {
        &self.host
    }

    pub(super) fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        self.host.route4(prefix, hop)
    }

    pub(super) fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        self.host.route6(prefix, hop)
    }

    /// Whether there are changes that no copy has yet.
    pub(super) fn is_stale(&self) -> bool {
        self.host.is_changed()
    }

    /// Costs so far.
    pub(super) fn update_costs(&self) -> UpdateCosts {
        self.update_costs
    }

    /// The tables for a batch, with all changes. While batches of other threads still read the spare copy,
    /// the last changes are missing.
    pub(super) fn latest(&mut self) -> Result<Arc<Buffer>, Error> {
        if self.host.is_changed()
            && let Some(buffer) = Arc::get_mut(&mut self.spare.buffer)
        {
            let started = Instant::now();
            let changed = self.host.refresh();
            self.current.stale_chunks.extend(&changed);
            self.spare.stale_chunks.extend(changed);
            let stale_chunks = &mut self.spare.stale_chunks;
            stale_chunks.sort_unstable();
            stale_chunks.dedup();
            for run in stale_chunks.chunk_by(|one, next| one + 1 == *next) {
                let bytes = run[0] * CHUNK..(run[run.len() - 1] + 1) * CHUNK;
                self.update_costs.bytes += bytes.len() as u64;
                self.device
                    .write(buffer, bytes.start, &self.host.bytes()[bytes])?;
            }
            stale_chunks.clear();
            std::mem::swap(&mut self.current, &mut self.spare);
            self.update_costs.times += 1;
            self.update_costs.took += started.elapsed();
        }
        Ok(Arc::clone(&self.current.buffer))
    }
}
