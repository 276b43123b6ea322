//! Looks for stores through memory of which the file system tells nothing: files that are mapped are
//! read before each epoch, and what differs from the last time is said.

use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::derive::Deriver;
use super::{Capture, Error};
use crate::record::{Change, File, Origin};

/// What a block of a file had. In bytes.
const BLOCK: usize = 64 << 10;
/// Where nothing else happens, stores are looked for so often.
const OFTEN: Duration = Duration::from_secs(1);

/// A hash of each block of a file; none of one that the log has from elsewhere.
pub(super) type Blocks = Vec<Option<u64>>;

impl Deriver {
    /// What was looked at is no longer what the log has.
    pub(super) fn forget_look(&mut self, change: &Change) {
        let (file, from, to) = match change {
            Change::Data {
                file,
                offset,
                bytes,
                ..
            } => (file, *offset, offset.saturating_add(bytes.len() as u64)),
            Change::Hole {
                file,
                offset,
                length,
            } => (file, *offset, offset.saturating_add(*length)),
            Change::Size { file, size } => (file, *size, u64::MAX),
            _ => return,
        };
        if let Some(blocks) = self.mapped.get_mut(file) {
            let block = |at: u64| usize::try_from(at / BLOCK as u64).unwrap_or(usize::MAX);
            let (from, to) = (block(from), block(to.saturating_sub(1)));
            for block in blocks.iter_mut().take(to.saturating_add(1)).skip(from) {
                *block = None;
            }
        }
    }
}

impl Capture {
    /// Looks if it is time to.
    pub(super) fn look_often(&mut self) -> Result<(), Error> {
        if !self.deriver.mapped.is_empty() && self.looked.elapsed() >= OFTEN {
            self.look()?;
        }
        Ok(())
    }

    /// Says what is different in files that are mapped.
    pub(super) fn look(&mut self) -> Result<(), Error> {
        self.looked = Instant::now();
        if !self.looks {
            return Ok(());
        }
        let files: Vec<_> = self.deriver.mapped.keys().copied().collect();
        for file in files {
            // The answer is an event: where nobody has it mapped any more, this is the last look.
            self.deriver.clean_range(file, 0, u64::MAX)?;
            self.look_at(file)?;
            self.look_at_time(file)?;
        }
        Ok(())
    }

    /// Below an overlay nothing tells that a store has changed the time.
    fn look_at_time(&mut self, file: File) -> Result<(), Error> {
        if self.deriver.source.holds()
            && let Some(stat) = self.deriver.source.stat(file)?
        {
            self.read_attributes(file, &stat)?;
        }
        Ok(())
    }

    fn look_at(&mut self, file: File) -> Result<(), Error> {
        let deriver = &mut self.deriver;
        let Some(opened) = deriver.source.file(file, OFlag::O_RDONLY)? else {
            return Ok(());
        };
        let known = deriver.mapped.get(&file).cloned().unwrap_or_default();
        let size = deriver.tree.get(file).map_or(0, |node| node.size);
        let mut blocks = Vec::new();
        let mut offset = 0;
        while offset < size {
            let left = usize::try_from(size - offset).unwrap_or(usize::MAX);
            let bytes = deriver
                .source
                .read(file, &opened, offset, BLOCK.min(left))?;
            if bytes.is_empty() {
                break;
            }
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            let hash = hasher.finish();
            let length = bytes.len() as u64;
            if known.get(blocks.len()) != Some(&Some(hash)) {
                self.progress.read_back += length;
                deriver.say(Change::Data {
                    file,
                    offset,
                    bytes,
                    origin: Origin::ReadBack,
                });
            }
            blocks.push(Some(hash));
            offset += length;
        }
        if let Some(known) = deriver.mapped.get_mut(&file) {
            *known = blocks;
        }
        Ok(())
    }
}
