//! What the workload can do to a tree: one value per step, printed as it is carried out.
//!
//! Paths are below the tree's root; `seed` stands for bytes, 0 for zeros.

use std::path::PathBuf;

use rustix::fs::FallocateFlags;

/// Bytes and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) offset: u64,
    pub(crate) length: usize,
    pub(crate) seed: u64,
}

/// Whole seconds since 1970 and nanoseconds.
pub(crate) type Timestamp = (i64, u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create {
        path: PathBuf,
        mode: u32,
        how: Creation,
    },
    /// `O_TMPFILE`, written, then linked.
    Nameless {
        path: PathBuf,
        area: Area,
    },
    Write {
        path: PathBuf,
        area: Area,
        how: Way,
    },
    /// Threads that append at once, each through a descriptor of its own.
    Race {
        path: PathBuf,
        threads: u8,
        writes: u8,
        length: usize,
    },
    Copy {
        from: PathBuf,
        to: PathBuf,
        source: u64,
        offset: u64,
        length: usize,
        how: Copying,
    },
    Resize {
        path: PathBuf,
        size: u64,
        how: Resizing,
    },
    Allocate {
        path: PathBuf,
        offset: u64,
        length: u64,
        how: Allocation,
    },
    /// Stores through shared memory, after the file was made long enough.
    Store {
        path: PathBuf,
        area: Area,
        closed: bool,
        synced: bool,
    },

    /// Keeps the file open for later steps, whatever happens to its name.
    Hold {
        path: PathBuf,
    },
    HeldWrite {
        slot: usize,
        area: Area,
        append: bool,
    },
    HeldResize {
        slot: usize,
        size: u64,
    },
    HeldMode {
        slot: usize,
        mode: u32,
    },
    Release {
        slot: usize,
    },
    /// Keeps the file mapped for later steps, its descriptor closed.
    Map {
        path: PathBuf,
        length: usize,
    },
    MappedStore {
        slot: usize,
        area: Area,
    },
    MappedSync {
        slot: usize,
    },
    Unmap {
        slot: usize,
    },

    Mkdir {
        path: PathBuf,
        mode: u32,
    },
    Mknod {
        path: PathBuf,
        mode: u32,
        what: Node,
    },
    Symlink {
        path: PathBuf,
        target: PathBuf,
    },
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        how: Renaming,
    },
    Unlink {
        path: PathBuf,
        ring: bool,
    },
    /// Written, unlinked, and written on before it is closed.
    UnlinkOpen {
        path: PathBuf,
        area: Area,
    },
    Rmdir {
        path: PathBuf,
    },

    Chmod {
        path: PathBuf,
        mode: u32,
    },
    Chown {
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// None: now.
    Times {
        path: PathBuf,
        modified: Option<Timestamp>,
    },
    SetExtended {
        path: PathBuf,
        name: String,
        length: usize,
        seed: u64,
    },
    RemoveExtended {
        path: PathBuf,
        name: String,
    },

    Sync {
        path: PathBuf,
        how: Syncing,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    Open,
    Exclusive,
    Truncating,
}

/// How bytes get into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Positioned,
    /// `lseek`, `write`.
    Sequential,
    Appending,
    /// `pwrite` through a descriptor that appends: the offset is ignored.
    PositionedAppending,
    Vectored,
    /// `pwritev2` with `RWF_APPEND`.
    AppendedOnce,
    Synchronous,
    /// `O_DIRECT`; whole blocks.
    Direct,
    /// From memory whose pages were never touched.
    Untouched,
    /// From a mapping of another file that is not in memory yet.
    Unread,
    /// From memory that another thread rewrites meanwhile.
    Flipped,
    /// A pipe, spliced.
    Spliced,
    Ring,
    RingWorker,
    RingPolled,
    RingDirect,
    /// By a child that inherited the descriptor.
    Inherited,
    /// By another process that received the descriptor through a socket.
    Passed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    Sendfile,
    Range,
    /// `FICLONE`: all of it.
    Clone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resizing {
    Ftruncate,
    Truncate,
    /// `O_TRUNC`: to nothing.
    Opened,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    Plain,
    KeepSize,
    Punch,
    Zero,
    ZeroKeepSize,
    Collapse,
    Insert,
    /// Plain, through `io_uring`.
    Ring,
}

impl Allocation {
    pub(crate) const ALL: [Self; 8] = [
        Self::Plain,
        Self::KeepSize,
        Self::Punch,
        Self::Zero,
        Self::ZeroKeepSize,
        Self::Collapse,
        Self::Insert,
        Self::Ring,
    ];

    /// The mode of `fallocate`. `None` if `io_uring` is used.
    pub(crate) fn mode(self) -> Option<FallocateFlags> {
        Some(match self {
            Self::Plain => FallocateFlags::empty(),
            Self::KeepSize => FallocateFlags::KEEP_SIZE,
            Self::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Self::Zero => FallocateFlags::ZERO_RANGE,
            Self::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            Self::Collapse => FallocateFlags::COLLAPSE_RANGE,
            Self::Insert => FallocateFlags::INSERT_RANGE,
            Self::Ring => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Fifo,
    Socket,
    Character,
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renaming {
    Replace,
    NoReplace,
    Exchange,
    /// Replacing, through `io_uring`.
    Ring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syncing {
    File,
    Data,
    /// `syncfs`.
    System,
    Ring,
}
