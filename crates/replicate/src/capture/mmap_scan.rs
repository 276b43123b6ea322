//! Finds stores through memory that the file system does not report. Mapped files are read before
//! each epoch, and differences from the last read are recorded.

use std::hash::{DefaultHasher, Hasher};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::listings::Listings;
use super::mapped_files::BlockHashes;
use super::pipeline::Pipeline;
use super::source::Stretch;
use super::{Error, Listener};
use crate::record::{Change, File};

/// The number of bytes per hash.
const BLOCK: u64 = 64 << 10;
/// How often mapped files are read while nothing else happens.
const INTERVAL: Duration = Duration::from_millis(800);

/// Decides when mapped files are read, if at all.
#[derive(Debug)]
pub(super) struct MmapScan {
    enabled: bool,
    last: Instant,
}

impl MmapScan {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            last: Instant::now(),
        }
    }

    /// Reads mapped files if the last read is long ago.
    pub(super) fn run_if_due(
        &mut self,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        if !pipeline.shadow.mapped.is_empty() && self.last.elapsed() >= INTERVAL {
            self.run(pipeline, listener)?;
        }
        Ok(())
    }

    /// Records the differences in mapped files.
    pub(super) fn run(
        &mut self,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        self.last = Instant::now();
        if !self.enabled {
            return Ok(());
        }
        for file in pipeline.shadow.mapped.files() {
            // The answer arrives as an event. If no process has the file mapped any more, this is
            // the last read.
            pipeline.shadow.clean_range(file, 0, u64::MAX)?;
            let mut scan = FileScan {
                file,
                pipeline,
                listener,
            };
            scan.compare_bytes()?;
            scan.update_time()?;
        }
        Ok(())
    }
}

/// The scan of one file.
struct FileScan<'a> {
    file: File,
    pipeline: &'a mut Pipeline,
    listener: &'a mut dyn Listener,
}

impl FileScan<'_> {
    fn compare_bytes(&mut self) -> Result<(), Error> {
        let file = self.file;
        let shadow = &mut self.pipeline.shadow;
        let Some(opened) = shadow.source.file(file, OFlag::O_RDONLY)? else {
            return Ok(());
        };
        let Some(mut known) = shadow.mapped.take(file) else {
            return Ok(());
        };
        let size = shadow.tree.get(file).map_or(0, |node| node.size);
        for stretch in shadow.source.stretches(file, &opened, (0, size))? {
            match stretch {
                Stretch::Data { offset, length } => {
                    self.compare_data(&opened, (offset, offset + length), &mut known)?;
                }
                Stretch::Hole { offset, length } if !known.has(offset, length, None) => {
                    self.pipeline.shadow.say(Change::Hole {
                        file,
                        offset,
                        length,
                    });
                }
                Stretch::Hole { .. } => {}
            }
        }
        self.pipeline.shadow.mapped.put(file, known);
        Ok(())
    }

    fn compare_data(
        &mut self,
        opened: &OwnedFd,
        (start, end): (u64, u64),
        known: &mut BlockHashes,
    ) -> Result<(), Error> {
        let mut offset = start;
        while offset < end {
            let to = (offset - offset % BLOCK + BLOCK).min(end);
            let most = usize::try_from(to - offset).unwrap_or(usize::MAX);
            let shadow = &mut self.pipeline.shadow;
            let bytes = shadow.source.read(self.file, opened, offset, most)?;
            if bytes.is_empty() {
                break;
            }
            let length = bytes.len() as u64;
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            if !known.has(offset, length, Some(hasher.finish())) {
                shadow.say_read_back(self.file, offset, bytes);
                self.pipeline.pass_on(self.listener)?;
            }
            offset += length;
        }
        Ok(())
    }

    /// On an overlay, no event reports that a store has changed the time.
    fn update_time(&mut self) -> Result<(), Error> {
        let shadow = &mut self.pipeline.shadow;
        if shadow.source.is_overlay()
            && let Some(stat) = shadow.source.stat(self.file)?
        {
            let before = shadow.update_attributes(self.file, &stat, &Listings::default())?;
            if let Some(before) = before {
                shadow.raise_write_doubt(self.file, before, u64::MAX);
            }
        }
        Ok(())
    }
}
