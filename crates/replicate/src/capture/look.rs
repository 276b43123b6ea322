//! Looks for stores through memory of which the file system tells nothing: files that are mapped are
//! read before each epoch, and what differs from the last time is said.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::derive::Deriver;
use super::source::Stretch;
use super::{Capture, Error, Listener};
use crate::record::{Change, File, Origin};

/// What a block of a file had. In bytes.
const BLOCK: u64 = 64 << 10;
/// Where nothing else happens, stores are looked for so often.
const OFTEN: Duration = Duration::from_secs(1);

/// What a file had when it was looked at: a hash of each piece, and none of a hole. What the log has from elsewhere by now
/// is not in it.
#[derive(Debug, Default)]
pub(super) struct Looked(BTreeMap<u64, Piece>);

#[derive(Debug, PartialEq, Eq)]
struct Piece {
    length: u64,
    hash: Option<u64>,
}

impl Looked {
    /// Whether it had just that there; if not, it has now.
    fn has(&mut self, offset: u64, length: u64, hash: Option<u64>) -> bool {
        let piece = Piece { length, hash };
        if self.0.get(&offset) == Some(&piece) {
            return true;
        }
        self.forget(offset, offset.saturating_add(length));
        self.0.insert(offset, piece);
        false
    }

    fn forget(&mut self, from: u64, to: u64) {
        let before = self.0.range(..to).rev();
        let within = before.take_while(|(at, piece)| at.saturating_add(piece.length) > from);
        let within: Vec<_> = within.map(|(at, _)| *at).collect();
        for at in within {
            self.0.remove(&at);
        }
    }
}

impl Deriver {
    /// What was looked at is no longer what the log has.
    pub(super) fn forget_look(&mut self, change: &Change) {
        if let Some((file, edit)) = change.edit()
            && let Some(looked) = self.mapped.get_mut(&file)
        {
            let (from, to) = edit.range();
            looked.forget(from, to);
        }
    }
}

impl Capture {
    /// Looks if it is time to.
    pub(super) fn look_often(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        if !self.deriver.mapped.is_empty() && self.looked.elapsed() >= OFTEN {
            self.look(listener)?;
        }
        Ok(())
    }

    /// Says what is different in files that are mapped.
    pub(super) fn look(&mut self, listener: &mut dyn Listener) -> Result<(), Error> {
        self.looked = Instant::now();
        if !self.looks {
            return Ok(());
        }
        let files: Vec<_> = self.deriver.mapped.keys().copied().collect();
        for file in files {
            // The answer is an event: where nobody has it mapped any more, this is the last look.
            self.deriver.clean_range(file, 0, u64::MAX)?;
            self.look_at(file, listener)?;
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

    fn look_at(&mut self, file: File, listener: &mut dyn Listener) -> Result<(), Error> {
        let Some(opened) = self.deriver.source.file(file, OFlag::O_RDONLY)? else {
            return Ok(());
        };
        let Some(mut known) = self.deriver.mapped.remove(&file) else {
            return Ok(());
        };
        let size = self.deriver.tree.get(file).map_or(0, |node| node.size);
        for stretch in self.deriver.source.stretches(file, &opened, (0, size))? {
            let (start, length) = match stretch {
                Stretch::Data { offset, length } => (offset, length),
                Stretch::Hole { offset, length } => {
                    if !known.has(offset, length, None) {
                        self.deriver.say(Change::Hole {
                            file,
                            offset,
                            length,
                        });
                    }
                    continue;
                }
            };
            let mut offset = start;
            while offset < start + length {
                let end = (offset - offset % BLOCK + BLOCK).min(start + length);
                let most = usize::try_from(end - offset).unwrap_or(usize::MAX);
                let bytes = self.deriver.source.read(file, &opened, offset, most)?;
                if bytes.is_empty() {
                    break;
                }
                let length = bytes.len() as u64;
                let mut hasher = DefaultHasher::new();
                hasher.write(&bytes);
                if !known.has(offset, length, Some(hasher.finish())) {
                    self.progress.read_back += length;
                    self.deriver.say(Change::Data {
                        file,
                        offset,
                        bytes,
                        origin: Origin::ReadBack,
                    });
                    self.pass_on(listener)?;
                }
                offset += length;
            }
        }
        self.deriver.mapped.insert(file, known);
        Ok(())
    }
}
