//! Where programs can be attached to kernel functions, writes are copied on file systems without a
//! tracepoint for them: every byte is captured, and nothing is read back.

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use replicate::capture::{self, Options};
use replicate::record::{Change, Entry, Origin, Part};
use rustix::fs::{copy_file_range, sendfile};
use rustix::pipe::{SpliceFlags, pipe, splice};
use sys::file_mapping::FileMapping;
use sys::require::{Class, skip};
use sys::uring::{self, Submission};

use crate::bed::file_system::{Format, within};
use crate::follow::Following;

const FORMATS: [Format; 3] = [Format::Tmpfs, Format::Xfs, Format::Btrfs];
/// More than a page, and not a multiple of one.
const LONG: usize = 300_001;
const PAGE: usize = 4096;
const WRITERS: u8 = 4;
const APPENDS: usize = 200;

type Work = fn(&Path) -> usize;
type Other = fn(&Path);

/// Operations that write to the file `a` or `b`, and the number of bytes.
const WRITES: &[(&str, Work)] = &[
    ("pwrite", |tree| at(tree, 5000, b"in the middle")),
    ("across pages", |tree| at(tree, 4090, &[7; 9000])),
    ("a long write", |tree| at(tree, 11, &pattern(LONG))),
    ("append", |tree| {
        append(tree).write_all(&pattern(5555)).unwrap();
        5555
    }),
    ("writev", |tree| {
        let parts = [IoSlice::new(b"several "), IoSlice::new(b"parts")];
        append(tree).write_vectored(&parts).unwrap()
    }),
    ("sendfile", |tree| {
        let from = File::open(tree.join("b")).unwrap();
        sendfile(to_write(tree, "a"), from, None, 6000).unwrap()
    }),
    ("splice", |tree| {
        let (reader, writer) = pipe().unwrap();
        rustix::io::write(&writer, b"through a pipe").unwrap();
        let none = SpliceFlags::empty();
        splice(&reader, None, to_write(tree, "a"), Some(&mut 9), 14, none).unwrap()
    }),
    ("writers that append to one file", |tree| {
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let mut file = append(tree);
                    for turn in 0..APPENDS {
                        file.write_all(&vec![b'a' + writer; 1 + turn * 7 % 500])
                            .unwrap();
                    }
                });
            }
        });
        let each = (0..APPENDS).map(|turn| 1 + turn * 7 % 500).sum::<usize>();
        usize::from(WRITERS) * each
    }),
];

/// Operations whose data is read back, completely or in part.
const OTHERS: &[(&str, Other)] = &[
    ("copy_file_range", |tree| {
        let from = File::open(tree.join("b")).unwrap();
        let to = to_write(tree, "a");
        copy_file_range(from, Some(&mut 0), to, Some(&mut 4096), 8192).unwrap();
    }),
    ("a write behind a hole", |tree| {
        at(tree, 3_000_001, b"far away");
    }),
    ("a ring", |tree| {
        uring::write(to_write(tree, "a"), b"by a ring", 300, Submission::Inline).unwrap();
    }),
    ("a ring's worker", |tree| {
        uring::write(to_write(tree, "a"), b"by a worker", 400, Submission::Worker).unwrap();
    }),
    ("what is cut off and written again", |tree| {
        to_write(tree, "a").set_len(5).unwrap();
        at(tree, 100, b"again");
    }),
    ("a write that faults", |tree| {
        // The source file ends after the first page.
        fs::write(tree.join("c"), pattern(PAGE)).unwrap();
        let map = FileMapping::new(to_write(tree, "c"), 2 * PAGE, 0).unwrap();
        let written = map.write_to(0..2 * PAGE, to_write(tree, "a"), 77);
        // btrfs copies nothing from a page that it cannot read completely.
        assert!(written.unwrap_or(0) <= PAGE);
    }),
];

#[test]
fn writes_are_copied_where_they_are_put() {
    if let Err(why) = capture::functions() {
        skip(Class::Hardware, &format!("programs at functions: {why}"));
        return;
    }
    within(|bed| {
        for format in FORMATS {
            let name = format!("{format:?}");
            let Some(tree) = bed.follow(format, &name) else {
                continue;
            };
            fs::write(tree.join("a"), pattern(40_000)).unwrap();
            fs::write(tree.join("b"), pattern(20_000)).unwrap();
            let mut following = Following::start(&tree, looking());
            following.check(&tree);
            for (write, work) in WRITES {
                let bytes = work(&tree);
                following.check(&tree);
                let said = &following.entries;
                assert_eq!(exact(said), bytes, "{name}: {write}");
                assert_eq!(read(said), 0, "{name}: {write}");
                assert_eq!(doubts(said), 0, "{name}: {write}: {said:?}");
            }
            for (other, work) in OTHERS {
                println!("{name}: {other}");
                following.during(|| work(&tree));
                following.check(&tree);
            }
        }
    });
}

#[test]
fn what_is_written_by_places_alone_is_read() {
    if capture::functions().is_err() {
        return;
    }
    within(|bed| {
        let Some(tree) = bed.follow(Format::Tmpfs, "source") else {
            return;
        };
        fs::write(tree.join("a"), pattern(40_000)).unwrap();
        let options = Options {
            journal: true,
            ..looking()
        };
        let mut following = Following::start(&tree, options);
        following.check(&tree);
        at(&tree, 77, b"journal");
        following.check(&tree);
        assert_eq!(exact(&following.entries), 0);
    });
}

fn looking() -> Options {
    Options {
        look: true,
        ..Options::default()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at * 31 % 251).unwrap())
        .collect()
}

fn to_write(tree: &Path, name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.open(tree.join(name)).unwrap()
}

fn append(tree: &Path) -> File {
    OpenOptions::new()
        .append(true)
        .open(tree.join("a"))
        .unwrap()
}

fn at(tree: &Path, offset: u64, bytes: &[u8]) -> usize {
    to_write(tree, "a").write_all_at(bytes, offset).unwrap();
    bytes.len()
}

/// The number of bytes that were copied at the write.
fn exact(entries: &[Entry]) -> usize {
    of(entries, Origin::Exact)
}

fn read(entries: &[Entry]) -> usize {
    of(entries, Origin::ReadBack)
}

fn of(entries: &[Entry], wanted: Origin) -> usize {
    let bytes = changes(entries).filter_map(|change| match change {
        Change::Data { bytes, origin, .. } if *origin == wanted => Some(bytes.len()),
        _ => None,
    });
    bytes.sum()
}

fn doubts(entries: &[Entry]) -> usize {
    // Attributes may be: another call may leave the file before it has grown by the write reported
    // here.
    let bytes = |change: &&Change| {
        matches!(
            change,
            Change::Doubt {
                part: Part::Range { .. },
                ..
            }
        )
    };
    changes(entries).filter(bytes).count()
}

fn changes(entries: &[Entry]) -> impl Iterator<Item = &Change> {
    entries.iter().filter_map(|entry| match entry {
        Entry::Change(change) => Some(change),
        _ => None,
    })
}
