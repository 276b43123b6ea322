//! Records for tests.

use replicate::record::{Attributes, Change, Entry, File, Kind, Name, Origin, Record};

pub(crate) const ROOT: File = file(2);

pub(crate) const fn file(inode: u64) -> File {
    File {
        inode,
        generation: 7,
    }
}

pub(crate) fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

pub(crate) fn start() -> Entry {
    Entry::Start { root: ROOT }
}

pub(crate) fn epoch(number: u64) -> Entry {
    Entry::Epoch { number }
}

pub(crate) fn new(inode: u64, kind: Kind) -> Entry {
    Entry::Change(Change::New {
        file: file(inode),
        kind,
    })
}

pub(crate) fn gone(inode: u64) -> Entry {
    Entry::Change(Change::Gone { file: file(inode) })
}

pub(crate) fn link(directory: u64, as_: &str, inode: u64) -> Entry {
    Entry::Change(Change::Link {
        directory: file(directory),
        name: name(as_),
        file: file(inode),
    })
}

pub(crate) fn unlink(directory: u64, as_: &str) -> Entry {
    Entry::Change(Change::Unlink {
        directory: file(directory),
        name: name(as_),
    })
}

pub(crate) fn data(inode: u64, offset: u64, bytes: &[u8]) -> Entry {
    Entry::Change(Change::Data {
        file: file(inode),
        offset,
        bytes: bytes.to_vec(),
        origin: Origin::Exact,
    })
}

pub(crate) fn size(inode: u64, size: u64) -> Entry {
    Entry::Change(Change::Size {
        file: file(inode),
        size,
    })
}

pub(crate) fn hole(inode: u64, offset: u64, length: u64) -> Entry {
    Entry::Change(Change::Hole {
        file: file(inode),
        offset,
        length,
    })
}

pub(crate) fn mode(inode: u64, mode: u16) -> Entry {
    Entry::Change(Change::Attributes {
        file: file(inode),
        attributes: Attributes {
            mode,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            modified_ns: 1_000_000_007 * i64::try_from(inode).unwrap() + i64::from(mode),
        },
    })
}

pub(crate) fn record(number: u64, entry: Entry) -> Record {
    Record {
        number,
        at_ns: number * 10,
        entry,
    }
}
