//! Every way in which bytes get into a file or out of it.

use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fastrand::Rng;
use rustix::fs::{
    AtFlags, CWD, MemfdFlags, Mode, OFlags, copy_file_range, fallocate, ftruncate, ioctl_ficlone,
    linkat, memfd_create, openat, sendfile, unlinkat,
};
use rustix::io::{ReadWriteFlags, pwritev, pwritev2};
use rustix::pipe::{SpliceFlags, pipe, splice};
use sys::file_mapping::FileMapping;
use sys::uring::{self, Submission};

use crate::operation::{Allocation, Area, Copying, Operation, Resizing, Way};
use crate::peer::{self, Peer};

const BLOCK: usize = 4096;

/// What a seed stands for.
pub(crate) fn bytes(area: Area) -> Vec<u8> {
    let mut bytes = vec![0; area.length];
    if area.seed != 0 {
        Rng::with_seed(area.seed).fill(&mut bytes);
    }
    bytes
}

pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::empty())
}

fn open_with(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<u64> {
    file.write_at(bytes, offset).map(|written| written as u64)
}

pub(crate) fn write(path: &Path, area: Area, how: Way, peer: &mut Option<Peer>) -> io::Result<u64> {
    let file = open_with(path, flags(how))?;
    let written = match how {
        Way::Positioned | Way::Synchronous | Way::PositionedAppending => {
            file.write_at(&bytes(area), area.offset)?
        }
        Way::Sequential => {
            (&file).seek(SeekFrom::Start(area.offset))?;
            (&file).write(&bytes(area))?
        }
        Way::Appending => (&file).write(&bytes(area))?,
        Way::Vectored => pwritev(&file, &slices(&bytes(area)), area.offset)?,
        Way::AppendedOnce => {
            let bytes = bytes(area);
            pwritev2(&file, &slices(&bytes), u64::MAX, ReadWriteFlags::APPEND)?
        }
        Way::Direct | Way::RingDirect => direct(&file, area, how)?,
        // Large enough that the allocator maps untouched zero pages.
        Way::Untouched => file.write_at(&vec![0; area.length + (1 << 18)], area.offset)?,
        Way::Unread => unread(path, &file, area)?,
        Way::Flipped => flipped(&file, area)?,
        Way::Spliced => spliced(&file, area)?,
        Way::Ring => uring::write(&file, &bytes(area), area.offset, Submission::Inline)?,
        Way::RingWorker => uring::write(&file, &bytes(area), area.offset, Submission::Worker)?,
        Way::RingPolled => uring::write(&file, &bytes(area), area.offset, Submission::Polled)?,
        Way::Inherited => return peer::by_child(file, area),
        Way::Passed => return Peer::reached(peer)?.write(&file, area),
    };
    Ok(written as u64)
}

fn flags(how: Way) -> OFlags {
    match how {
        Way::Appending | Way::PositionedAppending => OFlags::APPEND,
        Way::Synchronous => OFlags::DSYNC,
        Way::Direct | Way::RingDirect => OFlags::DIRECT,
        _ => OFlags::empty(),
    }
}

/// Three parts of different lengths, one perhaps empty.
fn slices(bytes: &[u8]) -> [IoSlice<'_>; 3] {
    let (head, rest) = bytes.split_at(bytes.len() / 7);
    let (middle, tail) = rest.split_at(rest.len() / 2);
    [head, middle, tail].map(IoSlice::new)
}

fn direct(file: &File, area: Area, how: Way) -> io::Result<usize> {
    let wanted = bytes(area);
    let mut memory = vec![0; wanted.len() + BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let aligned = &mut memory[start..start + wanted.len()];
    aligned.copy_from_slice(&wanted);
    if how == Way::RingDirect {
        uring::write(file, aligned, area.offset, Submission::Inline)
    } else {
        file.write_at(aligned, area.offset)
    }
}

/// The source is a neighbour without a name, written and dropped from memory: the write meets a page fault.
fn unread(path: &Path, file: &File, area: Area) -> io::Result<usize> {
    let source = nameless(path.parent().unwrap_or(path))?;
    source.write_all_at(&bytes(area), 0)?;
    source.sync_data()?;
    rustix::fs::fadvise(&source, 0, None, rustix::fs::Advice::DontNeed)?;
    FileMapping::new(&source, area.length, 0)?.write_to(0..area.length, file, area.offset)
}

fn nameless(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    Ok(openat(CWD, directory, flags, Mode::from_raw_mode(0o600))?.into())
}

fn flipped(file: &File, area: Area) -> io::Result<usize> {
    let memory = File::from(memfd_create("flipped", MemfdFlags::CLOEXEC)?);
    memory.set_len(area.length as u64)?;
    let source = FileMapping::new(&memory, area.length, 0)?;
    source.store(0, &bytes(area));
    let written = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = area.seed;
            while !written.load(Ordering::Relaxed) {
                round += 1;
                let other = Area {
                    seed: round,
                    ..area
                };
                source.store(0, &bytes(other));
            }
        });
        let result = (0..20)
            .map(|_| source.write_to(0..area.length, file, area.offset))
            .collect::<io::Result<Vec<_>>>();
        written.store(true, Ordering::Relaxed);
        result.map(|each| each.into_iter().sum())
    })
}

fn spliced(file: &File, area: Area) -> io::Result<usize> {
    let (reader, writer) = pipe()?;
    let bytes = bytes(area);
    let mut offset = area.offset;
    let mut moved = 0;
    for part in bytes.chunks(BLOCK * 8) {
        let mut left = rustix::io::write(&writer, part)?;
        while left > 0 {
            let now = splice(
                &reader,
                None,
                file,
                Some(&mut offset),
                left,
                SpliceFlags::empty(),
            )?;
            left -= now;
            moved += now;
        }
    }
    Ok(moved)
}

pub(crate) fn carry_out(root: &Path, operation: &Operation) -> io::Result<u64> {
    match operation {
        Operation::Nameless { path, area } => {
            let path = root.join(path);
            let file = nameless(path.parent().unwrap_or(root))?;
            let written = write_at(&file, &bytes(*area), area.offset)?;
            linkat(&file, "", CWD, &path, AtFlags::EMPTY_PATH)?;
            Ok(written)
        }
        Operation::Race {
            path,
            threads,
            writes,
            length,
        } => race(&root.join(path), *threads, *writes, *length),
        Operation::Copy {
            from,
            to,
            source,
            offset,
            length,
            how,
        } => {
            let (from, to) = (open(&root.join(from))?, open(&root.join(to))?);
            copy(&from, &to, (*source, *offset, *length), *how)
        }
        Operation::Resize { path, size, how } => resize(&root.join(path), *size, *how).map(|()| 0),
        Operation::Allocate {
            path,
            offset,
            length,
            how,
        } => allocate(&open(&root.join(path))?, *offset, *length, *how).map(|()| 0),
        Operation::Store {
            path,
            area,
            closed,
            synced,
        } => store(&root.join(path), *area, *closed, *synced),
        Operation::UnlinkOpen { path, area } => {
            let path = root.join(path);
            let file = open(&path)?;
            write_at(&file, &bytes(*area), area.offset)?;
            unlinkat(CWD, &path, AtFlags::empty())?;
            write_at(&file, &bytes(*area), area.offset + 1)
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn race(path: &Path, threads: u8, writes: u8, length: usize) -> io::Result<u64> {
    thread::scope(|scope| {
        let running: Vec<_> = (1..=threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut file = open_with(path, OFlags::APPEND)?;
                    let line = vec![thread; length];
                    (0..writes).try_for_each(|_| file.write_all(&line))
                })
            })
            .collect();
        for thread in running {
            let died = |_| Err(io::Error::other("an appending thread died"));
            thread.join().unwrap_or_else(died)?;
        }
        Ok(u64::from(threads) * u64::from(writes) * length as u64)
    })
}

/// From one offset to another, a length in bytes.
fn copy(from: &File, to: &File, area: (u64, u64, usize), how: Copying) -> io::Result<u64> {
    let (mut source, mut target, length) = area;
    let copied = match how {
        Copying::Sendfile => {
            let mut to = to;
            to.seek(SeekFrom::Start(target))?;
            sendfile(to, from, Some(&mut source), length)?
        }
        Copying::Range => copy_file_range(from, Some(&mut source), to, Some(&mut target), length)?,
        Copying::Clone => {
            ioctl_ficlone(to, from)?;
            0
        }
    };
    Ok(copied as u64)
}

fn resize(path: &Path, size: u64, how: Resizing) -> io::Result<()> {
    match how {
        Resizing::Ftruncate => Ok(ftruncate(open(path)?, size)?),
        Resizing::Truncate => Ok(nix::unistd::truncate(
            path,
            size.try_into().map_err(io::Error::other)?,
        )?),
        Resizing::Opened => open_with(path, OFlags::TRUNC).map(drop),
    }
}

fn allocate(file: &File, offset: u64, length: u64, how: Allocation) -> io::Result<()> {
    match how.mode() {
        Some(mode) => Ok(fallocate(file, mode, offset, length)?),
        None => uring::fallocate(file, 0, offset, length),
    }
}

fn store(path: &Path, area: Area, closed: bool, synced: bool) -> io::Result<u64> {
    let file = open(path)?;
    let end = area.offset + area.length as u64;
    if file.metadata()?.len() < end {
        file.set_len(end)?;
    }
    let inside = area.offset % BLOCK as u64;
    let start = area.offset - inside;
    let at = usize::try_from(inside).map_err(io::Error::other)?;
    let map = FileMapping::new(&file, at + area.length, start)?;
    let open = (!closed).then_some(file);
    map.store(at, &bytes(area));
    if synced {
        map.sync()?;
    }
    drop(open);
    Ok(area.length as u64)
}
