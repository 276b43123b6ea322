//! Comparing a folder with a log's tree finds each single difference and nothing else. Equal trees
//! have the same hash in any place.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use replicate::log::{self, Writer};
use replicate::patterns::Patterns;
use replicate::record::{Change, Entry, Kind};
use replicate::restore::restore;
use replicate::verify::{self, BLOCK, Difference, Progress, Scope, Verdict, What};
use rustix::fs::{XattrFlags, removexattr, setxattr};
use tempfile::TempDir;

use crate::bed::file_system::{Format, within};
use crate::bed::trees::{self, differences};
use crate::common::{ROOT, data, epoch, file, hole, link, mode, new, size, start};
use crate::naive;

const LARGE: usize = 5 * BLOCK + 77;

/// A log of a tree with some of every kind, and a folder restored from it.
struct Fixture {
    folder: TempDir,
}

fn entries() -> Vec<Entry> {
    let bytes: Vec<u8> = (0..LARGE).map(|at| (at / 7).to_le_bytes()[0]).collect();
    let mut all = vec![
        start(),
        new(10, Kind::Regular),
        data(10, 0, &bytes[..LARGE - 5]),
        data(10, 100_000, b"in the middle"),
        data(10, LARGE as u64 - 5, &bytes[LARGE - 5..]),
        new(11, Kind::Directory),
        new(12, Kind::Regular),
        data(12, 0, b"small"),
        size(12, 3),
        new(13, Kind::Symlink(b"a/large".to_vec())),
        new(14, Kind::Fifo),
        new(15, Kind::Regular),
        data(15, 3 << 20, b"far away"),
        size(15, 9 << 20),
        data(15, 0, &[0; 4096]),
        hole(15, 0, 4096),
        new(16, Kind::Directory),
        new(17, Kind::Regular),
        Entry::Change(Change::Extended {
            file: file(12),
            all: vec![(b"user.colour".to_vec(), b"blue".to_vec())],
        }),
        link(ROOT.inode, "a", 11),
        link(11, "large", 10),
        link(ROOT.inode, "b", 16),
        link(16, "again", 10),
        link(16, "small", 12),
        link(ROOT.inode, "link", 13),
        link(ROOT.inode, "pipe", 14),
        link(ROOT.inode, "sparse", 15),
        link(16, "empty", 17),
    ];
    all.extend((10..18).map(|inode| mode(inode, 0o640)));
    all.extend([mode(11, 0o750), mode(16, 0o700), mode(ROOT.inode, 0o755)]);
    all.push(epoch(1));
    all
}

impl Fixture {
    fn new() -> Self {
        let made = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut writer = Writer::open(&made.log(), log::Options::default()).unwrap();
        for entry in entries() {
            writer.append(5, entry).unwrap();
        }
        writer.sync().unwrap();
        made
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn restored(&self, name: &str) -> PathBuf {
        let to = self.folder.path().join(name);
        restore(&self.log(), None, &to, Default::default()).unwrap();
        to
    }
}

fn compare(log: &Path, folder: &Path) -> Verdict {
    let on = &mut |_: &Progress| ControlFlow::Continue(());
    verify::verify(log, None, folder, Scope::default(), on).unwrap()
}

fn hash(folder: &Path) -> String {
    let on = &mut |_: &Progress| ControlFlow::Continue(());
    let summary = verify::hash_folder(folder, &Patterns::default(), Scope::default(), on).unwrap();
    summary.hash.to_string()
}

fn hash_of_log(log: &Path) -> String {
    let on = &mut |_: &Progress| ControlFlow::Continue(());
    let summary = verify::hash_log(log, None, Scope::default(), on).unwrap();
    assert_eq!(summary.epoch, Some(1));
    summary.hash.to_string()
}

#[test]
fn a_restored_tree_is_equal_and_has_the_hash_that_is_defined() {
    let made = Fixture::new();
    let folder = made.restored("folder");
    let verdict = compare(&made.log(), &folder);
    assert!(verdict.equal(), "{verdict:?}");
    assert_eq!((verdict.epoch, verdict.names, verdict.holes), (1, 10, 0));
    let (ours, theirs) = verdict.hashes.unwrap();
    assert_eq!(ours, theirs);
    assert_eq!(hash_of_log(&made.log()), ours.to_string());
    assert_eq!(hash(&folder), ours.to_string());
    assert_eq!(naive::hash(&folder, true), ours.to_string());
}

#[test]
fn equal_trees_have_one_hash_on_every_file_system() {
    within(|bed| {
        let made = Fixture::new();
        let said = hash_of_log(&made.log());
        let mut tried = 0;
        for format in [Format::Ext4, Format::Xfs, Format::Btrfs, Format::Overlay] {
            let Some(disk) = bed.mount(format, &format!("{format:?}")) else {
                continue;
            };
            let folder = disk.join("folder");
            restore(&made.log(), None, &folder, Default::default()).unwrap();
            assert_eq!(hash(&folder), said, "{format:?}");
            assert!(compare(&made.log(), &folder).equal(), "{format:?}");
            tried += 1;
        }
        assert!(tried > 0);
    });
}

/// A way to make the folder differ, where, and as what that must be reported.
type Single = (&'static str, What, fn(&Path));

const SINGLES: &[Single] = &[
    ("a/large", What::Bytes, |path| {
        flip(path, 3 * BLOCK as u64 + 5);
    }),
    ("a/large", What::Bytes, |path| flip(path, LARGE as u64 - 1)),
    ("sparse", What::Bytes, |path| flip(path, 7 << 20)),
    ("b/small", What::Mode, |path| chmod(path, 0o641)),
    ("", What::Mode, |path| chmod(path, 0o750)),
    ("b/small", What::Extended, |path| {
        setxattr(path, "user.colour", b"Blue", XattrFlags::REPLACE).unwrap();
    }),
    ("b/small", What::Extended, |path| {
        removexattr(path, "user.colour").unwrap();
    }),
    ("a", What::Extended, |path| {
        setxattr(path, "user.more", b"", XattrFlags::CREATE).unwrap();
    }),
    ("b/again", What::Links, |path| {
        let other = path.with_file_name("other");
        fs::copy(path, &other).unwrap();
        fs::rename(&other, path).unwrap();
    }),
    ("pipe", What::Missing, |path| fs::remove_file(path).unwrap()),
    ("b", What::Missing, |path| fs::remove_dir_all(path).unwrap()),
    ("a/more", What::Extra, |path| fs::create_dir(path).unwrap()),
    ("sparse", What::Size, |path| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len((9 << 20) + 1).unwrap();
    }),
    ("link", What::Target, |path| {
        fs::remove_file(path).unwrap();
        symlink("a/larger", path).unwrap();
    }),
    ("b/empty", What::Kind, |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("b/empty", What::Modified, |path| {
        let time = path.metadata().unwrap().modified().unwrap();
        set_time(path, time + std::time::Duration::from_nanos(1));
    }),
];

/// Changes the entry at the path, and keeps its time and those of all directories.
fn change(folder: &Path, path: &str, what: What, with: fn(&Path)) {
    let at = if path.is_empty() {
        folder.to_owned()
    } else {
        folder.join(path)
    };
    let times: Vec<_> = ["", "a", "b", path]
        .iter()
        .map(|path| folder.join(path))
        .filter(|path| path.exists() && !path.is_symlink() && path.file_name().unwrap() != "pipe")
        .map(|path| (path.clone(), path.metadata().unwrap().modified().unwrap()))
        .collect();
    let link = at.symlink_metadata().ok().filter(|_| at.is_symlink());
    with(&at);
    for (path, time) in times {
        if path.exists() && (path != at || what != What::Modified) {
            set_time(&path, time);
        }
    }
    if let Some(before) = link {
        set_link_time(&at, &before);
    }
}

fn set_link_time(at: &Path, before: &fs::Metadata) {
    use std::os::unix::fs::MetadataExt as _;
    let time = rustix::fs::Timespec {
        tv_sec: before.mtime(),
        tv_nsec: before.mtime_nsec(),
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, at, &times, flags).unwrap();
}

fn set_time(path: &Path, time: std::time::SystemTime) {
    let times = FileTimes::new().set_modified(time);
    File::open(path).unwrap().set_times(times).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn found(all: &[Difference]) -> Vec<(&str, What)> {
    all.iter()
        .map(|one| (one.path.to_str().unwrap(), one.what))
        .collect()
}

#[test]
fn every_single_difference_is_found_and_nothing_else() {
    let made = Fixture::new();
    let said = hash_of_log(&made.log());
    for (index, (path, what, with)) in SINGLES.iter().enumerate() {
        let folder = made.restored(&format!("folder {index}"));
        change(&folder, path, *what, *with);
        let verdict = compare(&made.log(), &folder);
        let mut differ = found(&verdict.differences);
        if *what == What::Kind {
            // A directory has another mode than a file, and is not asked for it.
            differ.retain(|(_, what)| *what == What::Kind);
        }
        assert_eq!(differ, [(*path, *what)], "{verdict:#?}");
        assert_ne!(hash(&folder), said, "{path} {what:?}");
        assert_eq!(verdict.undecided_count, 0);
    }
}

#[test]
fn where_bytes_differ_is_said_in_blocks() {
    let made = Fixture::new();
    let folder = made.restored("folder");
    let block = BLOCK as u64;
    for at in [0, block, 3 * block + 9, 5 * block + 1] {
        flip(&folder.join("a/large"), at);
    }
    let verdict = compare(&made.log(), &folder);
    let bytes = verdict
        .differences
        .iter()
        .find(|one| one.what == What::Bytes);
    let ranges = &bytes.unwrap().ranges;
    assert_eq!(
        *ranges,
        [(0, 2 * block), (3 * block, block), (5 * block, 77)]
    );
}

#[test]
fn owners_differ_unless_they_are_left_out() {
    if !sys::require::root() {
        return;
    }
    let made = Fixture::new();
    let folder = made.restored("folder");
    lchown(folder.join("link"), Some(7), None).unwrap();
    let verdict = compare(&made.log(), &folder);
    assert_eq!(found(&verdict.differences), [("link", What::Owner)]);
    let on = &mut |_: &Progress| ControlFlow::Continue(());
    let without = Scope {
        owners: false,
        ..Scope::default()
    };
    let verdict = verify::verify(&made.log(), None, &folder, without, on).unwrap();
    assert!(verdict.equal());
    let (hash, _) = verdict.hashes.unwrap();
    assert_eq!(naive::hash(&folder, false), hash.to_string());
}

#[test]
fn what_was_ended_says_that_it_is_a_part() {
    let made = Fixture::new();
    let folder = made.restored("folder");
    flip(&folder.join("sparse"), 3 << 20);
    let mut left = 4;
    let mut few = |_: &Progress| {
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let verdict = verify::verify(&made.log(), None, &folder, Scope::default(), &mut few).unwrap();
    assert!(verdict.partial && !verdict.equal(), "{verdict:?}");
    assert_eq!(verdict.hashes, None);
    let ended = verify::hash_folder(&folder, &Patterns::default(), Scope::default(), &mut |_| {
        ControlFlow::Break(())
    });
    assert!(matches!(ended, Err(verify::Error::Ended)));
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let made = Fixture::new();
    let on = &mut |_: &Progress| ControlFlow::Continue(());
    let none = made.folder.path().join("none");
    let error = verify::verify(&made.log(), None, &none, Scope::default(), on).unwrap_err();
    assert!(matches!(error, verify::Error::Io { path, .. } if path == none));
    let folder = made.restored("folder");
    let error = verify::verify(&made.log(), Some(9), &folder, Scope::default(), on).unwrap_err();
    let verify::Error::Log(log::Error::NoEpoch { epoch: 9, .. }) = error else {
        panic!("{error}");
    };
}

/// Something done to a folder: which of the ways, to which of its names, with which number.
fn step() -> impl Strategy<Value = (u8, usize, u64)> {
    (0u8..9, 0usize..64, 0u64..10 << 20)
}

fn take_step(folder: &Path, (way, which, number): (u8, usize, u64)) {
    let mut names = BTreeSet::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                waiting.push(path.clone());
            }
            names.insert(path);
        }
    }
    let names: Vec<_> = names.into_iter().collect();
    let Some(path) = names.get(which % names.len().max(1)) else {
        return;
    };
    let kind = path.symlink_metadata().unwrap().file_type();
    let other = &names[usize::try_from(number).unwrap() % names.len()];
    // Not everything can be done to everything.
    let _done = match way {
        0 if kind.is_file() => {
            let length = path.metadata().unwrap().len();
            if length > 0 {
                flip(path, number % length);
            }
            Ok(())
        }
        1 if kind.is_file() => File::options()
            .write(true)
            .open(path)
            .and_then(|file| file.set_len(number)),
        2 if kind.is_file() || kind.is_dir() => {
            let mode = 0o700 | u32::try_from(number % 64).unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode))
        }
        3 if kind.is_file() => setxattr(
            path,
            "user.colour",
            &number.to_le_bytes()[..1],
            XattrFlags::empty(),
        )
        .map_err(Into::into),
        4 if kind.is_dir() => fs::remove_dir_all(path),
        4 => fs::remove_file(path),
        5 => fs::rename(path, other),
        6 => fs::hard_link(path, path.with_file_name(format!("new {}", number % 9))),
        7 => symlink("a", path.with_file_name(format!("new {}", number % 9))),
        8 => fs::create_dir(path.with_file_name(format!("new {}", number % 9))),
        _ => Ok(()),
    };
}

/// As the naive comparison calls it.
fn named(what: What) -> trees::What {
    match what {
        What::Missing => trees::What::Missing,
        What::Extra => trees::What::Extra,
        What::Kind => trees::What::Kind,
        What::Size => trees::What::Size,
        What::Bytes => trees::What::Bytes,
        What::Mode => trees::What::Mode,
        What::Owner => trees::What::Owner,
        What::Modified => trees::What::Modified,
        What::Extended => trees::What::Extended,
        What::Links => trees::What::Links,
        What::Target => trees::What::Target,
        What::Device => trees::What::Device,
    }
}

/// The differences that both comparisons report: bytes beyond the shorter of two sizes are not
/// compared here, files with several names are compared once, and entries below a missing directory
/// count with it.
fn common_ground(all: BTreeSet<(PathBuf, trees::What)>) -> BTreeSet<(PathBuf, trees::What)> {
    let gone: BTreeSet<PathBuf> = all
        .iter()
        .filter(|(_, what)| {
            matches!(
                what,
                trees::What::Missing | trees::What::Extra | trees::What::Kind
            )
        })
        .map(|(path, _)| path.clone())
        .collect();
    let below = |path: &Path| path.ancestors().skip(1).any(|above| gone.contains(above));
    let sized: BTreeSet<PathBuf> = all
        .iter()
        .filter(|(_, what)| *what == trees::What::Size)
        .map(|(path, _)| path.clone())
        .collect();
    all.into_iter()
        .filter(|(path, what)| {
            let named_again = path.ends_with("again") || path.ends_with("large");
            let bytes = *what == trees::What::Bytes && (named_again || sized.contains(path));
            *what != trees::What::Holes && !bytes && !below(path)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: sys::require::fuzz() * 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_finds_what_a_naive_comparison_finds(steps in prop::collection::vec(step(), 0..8)) {
        let made = Fixture::new();
        let (before, folder) = (made.restored("before"), made.restored("folder"));
        for step in &steps {
            take_step(&folder, *step);
        }
        let verdict = compare(&made.log(), &folder);
        let ours = verdict.differences.iter().map(|one| (one.path.clone(), named(one.what)));
        let theirs = differences(&before, &folder).into_iter().map(|one| (one.path, one.what));
        let ours = common_ground(ours.collect());
        prop_assert_eq!(&ours, &common_ground(theirs.collect()));
        prop_assert_eq!(hash(&folder), naive::hash(&folder, true));
        let same = hash(&folder) == hash_of_log(&made.log());
        prop_assert_eq!(same, verdict.equal());
    }
}
