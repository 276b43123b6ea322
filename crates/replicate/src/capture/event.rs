//! The events of the BPF programs and their encoding.

use crate::record::{File, Name};

use super::skel::{Plain, types};

const QUIET: u8 = 1;
const MIDDLE: u8 = 2;
const FLAG_XATTR: u8 = 4;
const OUTSIDE: u8 = 8;
const OVERFLOW: u8 = 16;
const FLAG_NAME: u8 = 32;
const LAST: u8 = 64;
const VAGUE: u8 = 128;

/// As `enum hook` of the programs, by bit. Hooks that only request an epoch have no name.
pub(super) const HOOKS: [&str; 15] = [
    "ext4_write_end",
    "ext4_truncate",
    "ext4_fallocate",
    "ext4_inode",
    "writeback_dirty_folio",
    "iomap_dio",
    "mmap",
    "inode_set_ctime",
    "xfs_file_buffered_write",
    "io_uring_complete",
    "sys_exit",
    "",
    "security_inode",
    "vfs_xattr",
    "btrfs_set_extent_bit",
];

/// Properties of an event beside its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u8);

/// A change, with its position among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Consecutive. A number that never arrives is a lost event.
    pub(super) number: u64,
    pub(super) file: File,
    pub(super) flags: Flags,
    /// The hooks that reported it, one bit each.
    pub(super) hooks: u16,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Data {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Bytes that changed and were not captured.
    Range {
        offset: u64,
        length: u64,
    },
    /// As `Range`, and any later store to them will be reported.
    Written {
        offset: u64,
        length: u64,
    },
    /// As `Written`, at the end of the file.
    Appended,
    Size(u64),
    New(State),
    State(State),
    Unlink(State),
    Gone,
    Sync,
    /// Whether processes can store to the file through memory.
    Mapped(bool),
    /// A directory that is or was outside of the tree.
    Left,
}

/// An inode after an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// As `st_mode`. Zero for an inode that was gone already.
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) size: u64,
    pub(super) modified_ns: i64,
    /// In the kernel's encoding of device numbers.
    pub(super) device: u32,
    /// For a new file, the directory it is created in.
    pub(super) parent: File,
    /// One of its names, with the directory.
    pub(super) name: Option<(File, Name)>,
    pub(super) task: u32,
    /// The number of the system call.
    pub(super) call: u16,
}

impl Event {
    /// Returns `None` for bytes that no program writes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (event, rest) = types::event::split(bytes)?;
        let length = usize::try_from(event.length).ok()?;
        let what = match event.kind {
            1 => What::Data {
                offset: event.offset,
                bytes: rest.get(..length)?.to_vec(),
            },
            2 => What::Range {
                offset: event.offset,
                length: event.length,
            },
            3 => What::Size(event.offset),
            4 => What::New(State::decode(bytes)?),
            5 => What::State(State::decode(bytes)?),
            6 => What::Unlink(State::decode(bytes)?),
            7 => What::Gone,
            8 => What::Sync,
            9 => What::Mapped(event.offset != 0),
            10 if event.length == 0 => What::Appended,
            10 => What::Written {
                offset: event.offset,
                length: event.length,
            },
            11 => What::Left,
            _ => return None,
        };
        Some(Self {
            number: event.number,
            file: File {
                inode: event.inode,
                generation: event.generation,
            },
            flags: Flags(event.flags),
            hooks: event.hooks,
            what,
        })
    }
}

impl What {
    /// Whether it concerns the bytes of a regular file.
    pub(super) fn is_of_bytes(&self) -> bool {
        match self {
            Self::Data { .. }
            | Self::Range { .. }
            | Self::Written { .. }
            | Self::Appended
            | Self::Size(_)
            | Self::Mapped(_) => true,
            Self::New(_)
            | Self::State(_)
            | Self::Unlink(_)
            | Self::Gone
            | Self::Sync
            | Self::Left => false,
        }
    }
}

impl Flags {
    /// No operation is under way at this event, and all earlier events have been sent.
    pub(super) fn quiet(self) -> bool {
        self.0 & QUIET != 0
    }

    /// The event was sent while its operation was running, and the end of the operation is not
    /// reported.
    pub(super) fn in_the_middle(self) -> bool {
        self.0 & MIDDLE != 0
    }

    pub(super) fn extended(self) -> bool {
        self.0 & FLAG_XATTR != 0
    }

    /// All its names are outside of the tree.
    pub(super) fn outside(self) -> bool {
        self.0 & OUTSIDE != 0
    }

    /// Its operation touched more files than were reported.
    pub(super) fn overflown(self) -> bool {
        self.0 & OVERFLOW != 0
    }

    /// The last state of its operation.
    pub(super) fn last(self) -> bool {
        self.0 & LAST != 0
    }

    /// The event only reports that something has changed.
    pub(super) fn vague(self) -> bool {
        self.0 & VAGUE != 0
    }
}

impl State {
    /// The directory of its name.
    pub(super) fn directory(&self) -> Option<File> {
        self.name.as_ref().map(|(directory, _)| *directory)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (state, _) = types::state::split(bytes)?;
        let parent = File {
            inode: state.parent,
            generation: state.parent_generation,
        };
        let named = state.event.flags & FLAG_NAME != 0;
        let length = usize::try_from(state.event.length).ok()?;
        let name = match named {
            true => Some((parent, Name::new(state.name.get(..length)?).ok()?)),
            false => None,
        };
        Some(Self {
            mode: state.mode,
            uid: state.uid,
            gid: state.gid,
            links: state.links,
            size: state.size,
            modified_ns: nanoseconds(state.modified_s, i64::from(state.modified_ns)),
            device: state.device,
            parent,
            name,
            task: state.task,
            call: state.call,
        })
    }
}

/// Nanoseconds since 1970. Times out of range are clamped.
pub(super) fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}
