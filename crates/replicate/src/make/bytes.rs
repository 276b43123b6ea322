//! Writes the bytes of a file from the log over the old bytes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::FallocateFlags;
use rustix::{fs, io::Errno};
use sys::holes;

use super::{Bytes, Fault, Gate};
use crate::contents::{self, Extents, Source};

/// How much is copied at once, in bytes.
const STEP: usize = 1 << 20;

/// Writes the bytes of files, and counts them.
#[derive(Debug)]
pub(super) struct ByteWriter<'a> {
    gate: &'a Gate,
    /// The number of bytes written.
    written: &'a mut u64,
}

impl<'a> ByteWriter<'a> {
    pub(super) fn new(gate: &'a Gate, written: &'a mut u64) -> Self {
        Self { gate, written }
    }

    /// Fills an empty file with the allocated ranges. The rest stays a hole.
    pub(super) fn fill(&mut self, to: &File, size: u64, bytes: Bytes<'_>) -> Result<(), Fault> {
        let shared = match bytes.old {
            Some(old) => self.copy(old, to, size, bytes.extents)?,
            None => false,
        };
        self.say(to, size, bytes.extents, shared)
    }

    /// Changes the bytes of the file. Repeating the operation has no further effect.
    pub(super) fn rewrite(
        &mut self,
        to: &File,
        size: u64,
        extents: Option<&Extents>,
    ) -> Result<(), Fault> {
        if to.metadata()?.len() > size {
            self.gate.pass()?;
            to.set_len(size)?;
        }
        self.say(to, size, extents, true)
    }

    /// Writes the bytes of the log over existing bytes, or into an empty file.
    fn say(
        &mut self,
        to: &File,
        size: u64,
        extents: Option<&Extents>,
        over: bool,
    ) -> Result<(), Fault> {
        let mut source = Source::default();
        for (start, end, bytes) in extents.into_iter().flat_map(Extents::iter) {
            let end = end.min(size);
            if start >= end {
                continue;
            }
            self.gate.pass()?;
            match bytes {
                contents::Bytes::Written { place, at } => {
                    let bytes = source.read(place, *at, start, end)?;
                    to.write_all_at(bytes, start)?;
                    *self.written += end - start;
                }
                contents::Bytes::Hole if over => {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    blank(to, start, end, flags)?;
                }
                contents::Bytes::Zeros if over => {
                    blank(to, start, end, FallocateFlags::ZERO_RANGE)?;
                }
                contents::Bytes::Hole => {}
                contents::Bytes::Zeros => {
                    // Without support for preallocation, a read returns zeros all the same.
                    let flags = FallocateFlags::empty();
                    if let Err(full @ (Errno::NOSPC | Errno::DQUOT)) =
                        fs::fallocate(to, flags, start, end - start)
                    {
                        return Err(full.into());
                    }
                }
            }
        }
        if to.metadata()?.len() != size {
            self.gate.pass()?;
            to.set_len(size)?;
        }
        Ok(())
    }

    /// Copies what the log does not describe. Returns true if all of it was shared by a reflink,
    /// which takes no space.
    fn copy(
        &mut self,
        old: &File,
        to: &File,
        size: u64,
        extents: Option<&Extents>,
    ) -> Result<bool, Fault> {
        let end = old.metadata()?.len().min(size);
        let mut kept = Vec::new();
        let mut at = 0;
        for (start, until, _) in extents.into_iter().flat_map(Extents::iter) {
            kept.push((at, start.min(end)));
            at = until;
        }
        kept.push((at, end));
        kept.retain(|(start, end)| start < end);
        if kept.is_empty() {
            return Ok(false);
        }
        self.gate.pass()?;
        if fs::ioctl_ficlone(to, old).is_ok() {
            if old.metadata()?.len() > size {
                self.gate.pass()?;
                to.set_len(size)?;
            }
            return Ok(true);
        }
        for (start, end) in kept {
            self.copy_range(old, to, start, end)?;
        }
        Ok(false)
    }

    fn copy_range(&mut self, old: &File, to: &File, start: u64, end: u64) -> Result<(), Fault> {
        let mut at = start;
        let mut buffer = Vec::new();
        while at < end {
            let Some(first) = holes::next_data(old, at)? else {
                break;
            };
            let last = holes::next_hole(old, first)?.map_or(end, |last| last.min(end));
            at = first;
            while at < last {
                let step = usize::try_from(last - at).map_or(STEP, |left| left.min(STEP));
                buffer.resize(step, 0);
                old.read_exact_at(&mut buffer, at)?;
                self.gate.pass()?;
                to.write_all_at(&buffer, at)?;
                at += step as u64;
                *self.written += step as u64;
            }
        }
        Ok(())
    }
}

/// Writes zeros over existing bytes.
fn blank(to: &File, start: u64, end: u64, flags: FallocateFlags) -> Result<(), Fault> {
    match fs::fallocate(to, flags, start, end - start) {
        Ok(()) => return Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
        Err(other) => return Err(other.into()),
    }
    let there = to.metadata()?.len().min(end);
    let zeros = vec![0; STEP];
    let mut at = start;
    while at < there {
        let step = usize::try_from(there - at).map_or(STEP, |left| left.min(STEP));
        let zeros = zeros.get(..step).unwrap_or_default();
        to.write_all_at(zeros, at)?;
        at += step as u64;
    }
    Ok(())
}
