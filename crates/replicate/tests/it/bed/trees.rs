//! The differences between two trees: the oracle of every test of a mirror. It shares no code with
//! the code under test.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};
use rustix::io::Errno;

/// Granularity in which holes are compared: what file systems allocate.
const BLOCK: u64 = 4096;

/// A path below the roots, and what differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Difference {
    pub(crate) path: PathBuf,
    pub(crate) what: What,
    pub(crate) detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    Missing,
    Extra,
    Kind,
    Size,
    Bytes,
    Mode,
    Owner,
    Modified,
    Extended,
    Links,
    Target,
    Device,
    Holes,
}

/// All differences; their holes count only when both have been written to the disk.
pub(crate) fn differences(source: &Path, replica: &Path) -> Vec<Difference> {
    differences_in(source, replica, &|_, _| true)
}

/// As [`differences`], with what belongs of the source: by its path, and whether it is a directory.
pub(crate) fn differences_in(
    source: &Path,
    replica: &Path,
    belongs: &dyn Fn(&Path, bool) -> bool,
) -> Vec<Difference> {
    let (ours, theirs) = (paths(source, belongs), paths(replica, &|_, _| true));
    let mut all = Vec::new();
    for (path, metadata) in &ours {
        match theirs.get(path) {
            None => all.push(difference(path, What::Missing, String::new())),
            Some(other) => compare(
                path,
                (&source.join(path), metadata),
                (&replica.join(path), other),
                &mut all,
            ),
        }
    }
    let extra = theirs.keys().filter(|path| !ours.contains_key(*path));
    all.extend(extra.map(|path| difference(path, What::Extra, String::new())));
    links(&ours, &theirs, &mut all);
    all
}

fn difference(path: &Path, what: What, detail: String) -> Difference {
    Difference {
        path: path.to_owned(),
        what,
        detail,
    }
}

/// Every entry with the root itself as the empty path.
fn paths(root: &Path, belongs: &dyn Fn(&Path, bool) -> bool) -> BTreeMap<PathBuf, Metadata> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        // `join` of nothing would end in a slash and follow.
        let full = if path.as_os_str().is_empty() {
            root.to_owned()
        } else {
            root.join(&path)
        };
        let metadata = full.symlink_metadata().unwrap();
        if !path.as_os_str().is_empty() && !belongs(&path, metadata.is_dir()) {
            continue;
        }
        if metadata.is_dir() {
            let entries = fs::read_dir(&full).unwrap();
            waiting.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
        }
        found.insert(path, metadata);
    }
    found
}

fn compare(
    path: &Path,
    (ours, a): (&Path, &Metadata),
    (theirs, b): (&Path, &Metadata),
    all: &mut Vec<Difference>,
) {
    let mut say = |what, x: String, y: String| {
        if x != y {
            all.push(difference(path, what, format!("{x} != {y}")));
        }
    };
    if kind(a) != kind(b) {
        say(What::Kind, kind(a).to_owned(), kind(b).to_owned());
        return;
    }
    say(
        What::Mode,
        format!("{:o}", a.mode()),
        format!("{:o}", b.mode()),
    );
    let owner = |m: &Metadata| format!("{}:{}", m.uid(), m.gid());
    say(What::Owner, owner(a), owner(b));
    let modified = |m: &Metadata| format!("{}.{:09}", m.mtime(), m.mtime_nsec());
    say(What::Modified, modified(a), modified(b));
    say(What::Device, a.rdev().to_string(), b.rdev().to_string());
    let attributes = |path| {
        let all = extended(path).into_iter();
        let shown = all.map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value));
        format!("{:?}", shown.collect::<Vec<_>>())
    };
    say(What::Extended, attributes(ours), attributes(theirs));
    if a.is_symlink() {
        let target = |path| format!("{:?}", fs::read_link(path).unwrap());
        say(What::Target, target(ours), target(theirs));
    } else if a.is_file() {
        say(What::Size, a.len().to_string(), b.len().to_string());
        let (x, y) = (data(ours), data(theirs));
        let holes = |data: &[(u64, Vec<u8>)]| {
            let ranges = data.iter().map(|(at, bytes)| *at..*at + bytes.len() as u64);
            format!("data in {:?}", ranges.collect::<Vec<_>>())
        };
        say(What::Holes, holes(&x), holes(&y));
        if let Some((at, x, y)) = first_unlike(&x, &y) {
            say(What::Bytes, format!("{x:#x} at {at}"), format!("{y:#x}"));
        }
    }
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () => "block device",
    }
}

/// Names and values, sorted.
pub(crate) fn extended(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 1 << 16];
    let length = match llistxattr(path, names.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => 0,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let all: BTreeMap<_, _> = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        // Overlay's own notes about its layers are not the tree's.
        .filter(|name| !name.starts_with(b"trusted.overlay."))
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let length = lgetxattr(path, name, value.as_mut_slice()).unwrap();
            value.truncate(length);
            (name.to_vec(), value)
        })
        .collect();
    all.into_iter().collect()
}

/// Where the file has data, and the data.
pub(crate) fn data(path: &Path) -> Vec<(u64, Vec<u8>)> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        let end = match seek(&file, SeekFrom::Hole(start)) {
            // Of ext4, behind data that is in an inode.
            Err(Errno::NOENT) => size,
            end => end.unwrap(),
        };
        let start = start - start % BLOCK;
        let end = end.next_multiple_of(BLOCK).min(size);
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        file.read_exact_at(&mut bytes, start).unwrap();
        found.push((start, bytes));
        at = end;
    }
    found
}

/// The first byte that differs, holes read as zeros.
fn first_unlike(a: &[(u64, Vec<u8>)], b: &[(u64, Vec<u8>)]) -> Option<(u64, u8, u8)> {
    let one_way = |a: &[(u64, Vec<u8>)], b: &[(u64, Vec<u8>)]| {
        a.iter()
            .filter_map(|(start, bytes)| {
                let other = window(*start, bytes.len(), b);
                let at = bytes.iter().zip(&other).position(|(x, y)| x != y)?;
                Some((start + at as u64, bytes[at], other[at]))
            })
            .min()
    };
    let there = one_way(a, b);
    let back = one_way(b, a).map(|(at, y, x)| (at, x, y));
    there.into_iter().chain(back).min()
}

/// The bytes from `start` on, holes as zeros.
pub(crate) fn window(start: u64, length: usize, data: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut window = vec![0; length];
    let end = start + length as u64;
    for (at, bytes) in data {
        let from = start.max(*at);
        let to = end.min(at + bytes.len() as u64);
        if from < to {
            let size = |n: u64| usize::try_from(n).unwrap();
            window[size(from - start)..size(to - start)]
                .copy_from_slice(&bytes[size(from - at)..size(to - at)]);
        }
    }
    window
}

/// Names that mean one file must do so on both sides.
fn links(
    ours: &BTreeMap<PathBuf, Metadata>,
    theirs: &BTreeMap<PathBuf, Metadata>,
    all: &mut Vec<Difference>,
) {
    let first_names = |tree: &BTreeMap<PathBuf, Metadata>| {
        let mut first = BTreeMap::new();
        let mut names = BTreeMap::new();
        for (path, metadata) in tree.iter().filter(|(_, metadata)| !metadata.is_dir()) {
            let group: &mut PathBuf = first.entry(metadata.ino()).or_insert_with(|| path.clone());
            names.insert(path.clone(), group.clone());
        }
        names
    };
    let (a, b) = (first_names(ours), first_names(theirs));
    for (path, group) in &a {
        if let Some(other) = b.get(path).filter(|other| *other != group) {
            let detail = format!("linked with {group:?} != {other:?}");
            all.push(difference(path, What::Links, detail));
        }
    }
}
