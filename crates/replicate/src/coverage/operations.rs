//! The file operations of programs, each in a separate folder.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags, copy_file_range,
    fallocate, ioctl_ficlone, mknodat, openat, removexattr, renameat_with, sendfile, setxattr,
};
use rustix::io::{ReadWriteFlags, pwritev, pwritev2};
use rustix::pipe::{SpliceFlags, pipe, splice};
use sys::file_mapping::FileMapping;
use sys::uring::{self, Submission};

use super::passing;

const BLOCK: usize = 4096;
const SIZE: usize = 5 * BLOCK;
const WORDS: &[u8] = b"what a program writes";

/// The files that exist before the capture.
#[derive(Debug)]
pub(super) struct Fixture {
    /// A mapping of the file `mapped`.
    map: FileMapping,
}

/// A file operation of a program.
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) carry_out: fn(&Path, &mut Fixture) -> io::Result<()>,
}

/// Creates what the operation needs.
pub(super) fn prepare(folder: &Path) -> io::Result<Fixture> {
    fs::create_dir(folder)?;
    for (name, byte) in [("a", b'a'), ("b", b'b'), ("mapped", b'm')] {
        fs::write(folder.join(name), vec![byte; SIZE])?;
    }
    fs::create_dir(folder.join("d"))?;
    // If the file system has no extended attributes, the removal will report it.
    let _ = setxattr(folder.join("b"), "user.b", b"b", XattrFlags::empty());
    let map = FileMapping::new(open(folder, "mapped", OFlags::empty())?, SIZE, 0)?;
    map.store(0, b"there before");
    Ok(Fixture { map })
}

macro_rules! operations {
    ($($name:literal => $carry_out:expr,)*) => {
        pub(super) const OPERATIONS: &[Operation] = &[
            $(Operation { name: $name, carry_out: $carry_out },)*
        ];
    };
}

operations! {
    "write" => |at, _| {
        let mut file = a(at)?;
        file.seek(SeekFrom::Start(5000))?;
        file.write_all(WORDS)
    },
    "pwrite" => |at, _| a(at)?.write_all_at(WORDS, 7000),
    "writev" => |at, _| all(pwritev(a(at)?, &[IoSlice::new(WORDS), IoSlice::new(b"!")], 6000)?, 22),
    "pwritev2" => |at, _| {
        let parts = [IoSlice::new(WORDS)];
        all(pwritev2(a(at)?, &parts, u64::MAX, ReadWriteFlags::APPEND)?, 21)
    },
    "append" => |at, _| open(at, "a", OFlags::APPEND)?.write_all(WORDS),
    "synchronous" => |at, _| open(at, "a", OFlags::DSYNC)?.write_all_at(WORDS, 99),
    "sendfile" => |at, _| all(sendfile(a(at)?, open(at, "b", OFlags::empty())?, None, 6000)?, 6000),
    "splice" => |at, _| {
        let (reader, writer) = pipe()?;
        rustix::io::write(&writer, WORDS)?;
        let none = SpliceFlags::empty();
        all(splice(&reader, None, a(at)?, Some(&mut 4000), WORDS.len(), none)?, WORDS.len())
    },
    "copy_file_range" => |at, _| {
        let b = open(at, "b", OFlags::empty())?;
        all(copy_file_range(b, Some(&mut 0), a(at)?, Some(&mut 4096), 8192)?, 8192)
    },
    "clone" => |at, _| Ok(ioctl_ficlone(a(at)?, open(at, "b", OFlags::empty())?)?),
    "io_uring" => |at, _| all(uring::write(a(at)?, WORDS, 300, Submission::Inline)?, WORDS.len()),
    "io_uring-worker" => |at, _| {
        all(uring::write(a(at)?, WORDS, 300, Submission::Worker)?, WORDS.len())
    },
    "io_uring-direct" => |at, _| {
        let file = open(at, "a", OFlags::DIRECT)?;
        aligned(|block| all(uring::write(&file, block, 4096, Submission::Inline)?, BLOCK))
    },
    "direct" => |at, _| {
        let file = open(at, "a", OFlags::DIRECT)?;
        aligned(|block| file.write_all_at(block, 8192))
    },
    "mmap" => |_, prepared| {
        prepared.map.store(BLOCK + 17, WORDS);
        Ok(())
    },
    "mmap-again" => |at, _| {
        let map = FileMapping::new(a(at)?, SIZE, 0)?;
        map.store(2 * BLOCK, WORDS);
        Ok(())
    },
    "truncate" => |at, _| Ok(nix::unistd::truncate(&at.join("a"), 6000)?),
    "ftruncate" => |at, _| a(at)?.set_len(123_456),
    "O_TRUNC" => |at, _| open(at, "a", OFlags::TRUNC).map(drop),
    "fallocate" => |at, _| allocate(at, FallocateFlags::empty()),
    "fallocate-keep-size" => |at, _| allocate(at, FallocateFlags::KEEP_SIZE),
    "fallocate-punch" => |at, _| {
        allocate(at, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
    },
    "fallocate-zero" => |at, _| allocate(at, FallocateFlags::ZERO_RANGE),
    "fallocate-collapse" => |at, _| allocate(at, FallocateFlags::COLLAPSE_RANGE),
    "fallocate-insert" => |at, _| allocate(at, FallocateFlags::INSERT_RANGE),
    "create" => |at, _| fs::write(at.join("new"), WORDS),
    "rename" => |at, _| fs::rename(at.join("a"), at.join("d/moved")),
    "rename-replace" => |at, _| fs::rename(at.join("a"), at.join("b")),
    "rename-exchange" => |at, _| {
        let (a, d) = (at.join("a"), at.join("d"));
        Ok(renameat_with(CWD, a, CWD, d, RenameFlags::EXCHANGE)?)
    },
    "link" => |at, _| fs::hard_link(at.join("a"), at.join("d/again")),
    "unlink" => |at, _| fs::remove_file(at.join("a")),
    "symlink" => |at, _| symlink("nowhere", at.join("symlink")),
    "mkdir" => |at, _| fs::create_dir(at.join("d/new")),
    "rmdir" => |at, _| fs::remove_dir(at.join("d")),
    "mknod" => |at, _| {
        let null = rustix::fs::makedev(1, 3);
        let mode = Mode::RUSR;
        Ok(mknodat(CWD, at.join("null"), FileType::CharacterDevice, mode, null)?)
    },
    "chmod" => |at, _| fs::set_permissions(at.join("a"), Permissions::from_mode(0o640)),
    "chown" => |at, _| lchown(at.join("a"), Some(7), Some(8)),
    "utimens" => |at, _| {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(77);
        a(at)?.set_times(FileTimes::new().set_modified(then))
    },
    "setxattr" => |at, _| Ok(setxattr(at.join("a"), "user.a", b"value", XattrFlags::empty())?),
    "removexattr" => |at, _| Ok(removexattr(at.join("b"), "user.b")?),
    "child" => |at, _| {
        let mut child = Command::new("/bin/echo");
        let ended = child.arg("by a child").stdin(Stdio::null()).stdout(a(at)?).status()?;
        all(usize::from(ended.success()), 1)
    },
    "passed-descriptor" => |at, _| {
        let file = File::from(passing::through_a_socket(&a(at)?)?);
        file.write_all_at(WORDS, 11)
    },
}

fn a(folder: &Path) -> io::Result<File> {
    open(folder, "a", OFlags::empty())
}

fn open(folder: &Path, name: &str, more: OFlags) -> io::Result<File> {
    let path: PathBuf = folder.join(name);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

fn all(done: usize, wanted: usize) -> io::Result<()> {
    if done == wanted {
        return Ok(());
    }
    Err(io::Error::other(format!("{done} of {wanted} bytes")))
}

fn allocate(folder: &Path, mode: FallocateFlags) -> io::Result<()> {
    let block = BLOCK as u64;
    Ok(fallocate(a(folder)?.as_fd(), mode, block, 2 * block)?)
}

/// Provides an aligned buffer for direct I/O.
fn aligned(write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let memory = vec![b'D'; 2 * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let block = memory.get(start..).and_then(|rest| rest.get(..BLOCK));
    write(block.ok_or(io::ErrorKind::InvalidInput)?)
}
