//! Empties a temporary folder, or the one beside a tree. Deeply nested directories are first moved
//! up, so that their depth costs nothing.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::{fs, io::Errno};

use super::folders;
use crate::make::{Gate, by_path};

pub(crate) fn wipe(folder: BorrowedFd<'_>, gate: &Gate) -> Result<(), Errno> {
    let mut left = names(folder)?;
    let mut brought = 0_u64;
    while let Some(name) = left.pop() {
        gate.pass()?;
        match fs::unlinkat(folder, &name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            done => {
                done?;
                continue;
            }
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = folders::open(folder, &name, flags)?;
        permit(directory.as_fd())?;
        for below in names(directory.as_fd())? {
            gate.pass()?;
            match fs::unlinkat(&directory, &below, AtFlags::empty()) {
                Err(Errno::ISDIR) => {}
                done => {
                    done?;
                    continue;
                }
            }
            let up = loop {
                brought += 1;
                let up = OsString::from(format!("w{brought}"));
                if fs::statat(folder, &up, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                    break up;
                }
            };
            permit(folders::open(&directory, &below, flags)?.as_fd())?;
            fs::renameat(&directory, &below, folder, &up)?;
            left.push(up);
        }
        fs::unlinkat(folder, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Without root, only a user with write permission can empty or move a directory.
pub(super) fn permit(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    if fs::fstat(directory)?.st_mode & 0o700 == 0o700 {
        return Ok(());
    }
    fs::chmod(by_path(directory), Mode::RWXU)
}

fn names(folder: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = fs::openat(folder, OsStr::from_bytes(b"."), flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(&listed)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}
