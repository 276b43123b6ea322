//! What each system call may do to files, by its number on this machine.

use nix::libc;

/// As `enum call_kind` of the programs.
const NAMES: u8 = 1;
const WHOLE: u8 = 2;
const FIRST: u8 = 4;
const THIRD: u8 = 8;
const MOVES: u8 = 16;
const SYNC: u8 = 32;
const SYNC_ALL: u8 = 64;
const FLAG_OPENED: u8 = 128;

/// The programs know numbers below this one.
pub(super) const COUNT: usize = 512;

/// Newer than the libraries.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// Whether the system call moves names.
pub(super) fn renames(call: u16) -> bool {
    is(call, &RENAMES)
}

pub(super) fn links(call: u16) -> bool {
    is(call, &LINKS)
}

/// Whether the system call may give a file a name.
pub(super) fn names(call: u16) -> bool {
    renames(call) || links(call) || is(call, &OPENS) || is(call, &old::OPENS)
}

fn is(call: u16, calls: &[i64]) -> bool {
    calls.contains(&i64::from(call))
}

/// Calls of 64-bit x86 that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
mod old {
    use nix::libc;

    pub(super) const RENAME: i64 = libc::SYS_rename;
    pub(super) const LINK: i64 = libc::SYS_link;
    pub(super) const NAMES: [i64; 10] = [
        libc::SYS_unlink,
        libc::SYS_rmdir,
        libc::SYS_mkdir,
        libc::SYS_mknod,
        libc::SYS_symlink,
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
    ];
    pub(super) const OPENS: [i64; 2] = [libc::SYS_open, libc::SYS_creat];
}

#[cfg(not(target_arch = "x86_64"))]
mod old {
    use nix::libc;

    pub(super) const RENAME: i64 = libc::SYS_renameat;
    pub(super) const LINK: i64 = libc::SYS_linkat;
    pub(super) const NAMES: [i64; 0] = [];
    pub(super) const OPENS: [i64; 0] = [];
}

const RENAMES: [i64; 3] = [old::RENAME, libc::SYS_renameat, libc::SYS_renameat2];
const OPENS: [i64; 2] = [libc::SYS_openat, libc::SYS_openat2];
const LINKS: [i64; 2] = [old::LINK, libc::SYS_linkat];

/// What each call may do, by its number.
pub(super) fn table() -> [u8; COUNT] {
    let mut table = [0; COUNT];
    let mut mark = |calls: &[i64], kind: u8| {
        let numbers = calls.iter().filter_map(|call| usize::try_from(*call).ok());
        for number in numbers {
            if let Some(entry) = table.get_mut(number) {
                *entry |= kind;
            }
        }
    };
    mark(&RENAMES, NAMES | MOVES);
    mark(&LINKS, NAMES | MOVES);
    mark(&old::NAMES, NAMES);
    mark(&old::OPENS, WHOLE | FLAG_OPENED);
    mark(&OPENS, WHOLE | FLAG_OPENED);
    mark(
        &[
            libc::SYS_unlinkat,
            libc::SYS_mkdirat,
            libc::SYS_mknodat,
            libc::SYS_symlinkat,
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            FCHMODAT2,
            libc::SYS_fchown,
            libc::SYS_fchownat,
            libc::SYS_utimensat,
            libc::SYS_setxattr,
            libc::SYS_lsetxattr,
            libc::SYS_fsetxattr,
            libc::SYS_removexattr,
            libc::SYS_lremovexattr,
            libc::SYS_fremovexattr,
            SETXATTRAT,
            REMOVEXATTRAT,
            FILE_SETATTR,
        ],
        NAMES,
    );
    mark(&[libc::SYS_truncate, libc::SYS_io_submit], WHOLE);
    mark(
        &[libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_ioctl],
        WHOLE | FIRST,
    );
    mark(
        &[
            libc::SYS_write,
            libc::SYS_pwrite64,
            libc::SYS_writev,
            libc::SYS_pwritev,
            libc::SYS_pwritev2,
            libc::SYS_sendfile,
        ],
        FIRST,
    );
    mark(&[libc::SYS_splice], THIRD);
    mark(&[libc::SYS_copy_file_range], WHOLE | THIRD);
    mark(&[libc::SYS_fsync, libc::SYS_fdatasync], SYNC);
    mark(&[libc::SYS_syncfs], SYNC | SYNC_ALL);
    mark(&[libc::SYS_sync], SYNC_ALL);
    table
}
