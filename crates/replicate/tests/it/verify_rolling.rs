//! A tree is compared with its log piece by piece: each name once in a round, and unequal names
//! again until the result is clear.

use std::fs::{self, File, FileTimes, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use replicate::log::{self, Writer};
use replicate::record::{Entry, Kind};
use replicate::restore::restore;
use replicate::verify::{BLOCK, Progress, Rolling, RoundReport, Scope, SyncPoint, What};
use tempfile::TempDir;

use crate::common::{ROOT, data, epoch, link, mode, new, start};

/// Smaller than any name: a piece for each.
const MIN_PIECE: u64 = 1;
const DIRECTORIES: u64 = 5;
const FILES: u64 = 7;
/// The root, directories with files in each, and a large file.
const NAMES: u64 = 1 + DIRECTORIES * (1 + FILES) + 1;

/// A log and its tree.
struct Fixture {
    folder: TempDir,
    writer: Writer,
    rolling: Rolling,
    epoch: u64,
}

fn large() -> Vec<u8> {
    (0..4 * BLOCK).map(|at| (at / 5).to_le_bytes()[0]).collect()
}

fn entries() -> Vec<Entry> {
    let mut all = vec![start(), new(9, Kind::Regular), data(9, 0, &large())];
    all.extend([link(ROOT.inode, "large", 9), mode(9, 0o600)]);
    for directory in 1..=DIRECTORIES {
        let number = directory * 100;
        all.push(new(number, Kind::Directory));
        // In the order of their bytes "d", "d-", "d--" and so on come before "d/...": a walk has it otherwise.
        let name = format!("d{}", "-".repeat(usize::try_from(directory - 1).unwrap()));
        all.push(link(ROOT.inode, &name, number));
        for file in 1..=FILES {
            all.push(new(number + file, Kind::Regular));
            all.push(data(number + file, 0, &file.to_le_bytes()));
            all.push(mode(number + file, 0o640));
            all.push(link(number, &file.to_string(), number + file));
        }
        all.push(mode(number, 0o750));
    }
    all.push(mode(ROOT.inode, 0o755));
    all.push(epoch(1));
    all
}

impl Fixture {
    fn new() -> Self {
        Self::of(entries())
    }

    fn of(entries: Vec<Entry>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (log, tree) = (folder.path().join("log"), folder.path().join("tree"));
        let mut writer = Writer::open(&log, log::Options::default()).unwrap();
        for entry in entries {
            writer.append(5, entry).unwrap();
        }
        restore(&log, None, &tree, Default::default()).unwrap();
        let rolling = Rolling::open(&log, &tree, Scope::default(), true).unwrap();
        Self {
            folder,
            writer,
            rolling,
            epoch: 1,
        }
    }

    fn tree(&self, below: &str) -> PathBuf {
        self.folder.path().join("tree").join(below)
    }

    /// Appends an entry and an epoch to the log.
    fn say(&mut self, entry: Entry) {
        self.epoch += 1;
        self.writer.append(6, entry).unwrap();
        self.writer.append(6, epoch(self.epoch)).unwrap();
    }

    /// As if the log had had everything for long.
    fn rested(&self) -> SyncPoint {
        SyncPoint {
            epoch: self.epoch,
            at: SystemTime::now() + Duration::from_secs(10),
        }
    }

    /// As if it had everything now.
    fn now(&self) -> SyncPoint {
        SyncPoint {
            epoch: self.epoch,
            at: SystemTime::now(),
        }
    }

    fn round(&mut self, work: u64) -> Vec<RoundReport> {
        let mut all = Vec::new();
        loop {
            let looked = self.rolling.look(self.rested(), work, &mut on).unwrap();
            let last = looked.round;
            all.push(looked);
            if last {
                return all;
            }
        }
    }

    fn again(&mut self, caught: SyncPoint) -> RoundReport {
        self.rolling.look_again(caught, &mut on).unwrap()
    }

    /// Repeats until nothing more is reported.
    fn settle(&mut self) -> Vec<(String, Vec<What>)> {
        let mut found = Vec::new();
        for _ in 0..4 {
            let looked = self.again(self.rested());
            for one in looked.differing {
                let path = one.path.to_str().unwrap().to_owned();
                found.push((path, one.all.iter().map(|one| one.what).collect()));
            }
        }
        found
    }
}

fn on(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Changes nothing but the bytes.
fn damage(path: PathBuf, at: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let before = file.metadata().unwrap();
    file.write_all_at(b"!", at).unwrap();
    let times = FileTimes::new().set_modified(before.modified().unwrap());
    file.set_times(times).unwrap();
}

#[test]
fn a_round_has_each_name_in_pieces_of_any_size() {
    let mut followed = Fixture::new();
    assert!(followed.rolling.follow(1, &mut on).unwrap());
    let work = followed.rolling.work();
    assert!(work > (NAMES * 4096) + large().len() as u64);
    let mut counts = Vec::new();
    for piece in [MIN_PIECE, 20_000, 100_000, u64::MAX] {
        let looked = followed.round(piece);
        let bytes: u64 = looked.iter().map(|one| one.bytes).sum();
        assert_eq!(bytes, large().len() as u64 + DIRECTORIES * FILES * 8);
        assert!(!followed.rolling.is_open(), "all is equal");
        // What leads to a piece is looked at with each.
        let names: u64 = looked.iter().map(|one| one.names).sum();
        assert!(names >= NAMES, "{names}");
        counts.push(looked.len());
    }
    assert_eq!(
        counts[0] as u64, NAMES,
        "behind the root each is a piece, and the end"
    );
    assert!(
        counts.is_sorted_by(|a, b| a > b) && counts[3] == 1,
        "{counts:?}"
    );
}

#[test]
fn what_differs_and_rests_is_said_once_and_then_mended_or_left() {
    for piece in [MIN_PIECE, u64::MAX] {
        let mut followed = Fixture::new();
        damage(followed.tree("large"), 2 * BLOCK as u64 + 7);
        let moved = (followed.tree("d-/3"), followed.folder.path().join("aside"));
        fs::rename(&moved.0, &moved.1).unwrap();
        fs::write(followed.tree("d--/new"), "unseen").unwrap();
        let permissions = Permissions::from_mode(0o600);
        fs::set_permissions(followed.tree("d---/7"), permissions).unwrap();
        followed.round(piece);
        let mut expected = vec![
            ("d-", vec![What::Modified]),
            ("d-/3", vec![What::Missing]),
            ("d--", vec![What::Modified]),
            ("d--/new", vec![What::Extra]),
            ("d---/7", vec![What::Mode]),
            ("large", vec![What::Bytes]),
        ];
        expected.sort();
        let mut found = followed.settle();
        found.sort();
        let found: Vec<_> = found
            .iter()
            .map(|(path, what)| (path.as_str(), what.clone()))
            .collect();
        assert_eq!(found, expected);
        // The next round finds the known differences.
        followed.round(piece);
        assert_eq!(followed.settle(), []);
        let mut bytes = vec![0; BLOCK];
        let large = File::open(followed.tree("large")).unwrap();
        large.read_exact_at(&mut bytes, 2 * BLOCK as u64).unwrap();
        followed.say(data(9, 2 * BLOCK as u64, &bytes));
        let looked = followed.again(followed.rested());
        assert_eq!(looked.mended, [PathBuf::from("large")]);
        assert!(followed.rolling.is_open(), "the others are not mended");
    }
}

#[test]
fn however_much_differs_none_of_it_is_mended_by_itself() {
    const NAMES: u64 = 1500;
    let mut all = vec![start()];
    for number in 10..10 + NAMES {
        all.extend([new(number, Kind::Regular), mode(number, 0o644)]);
        all.push(link(ROOT.inode, &number.to_string(), number));
    }
    all.extend([mode(ROOT.inode, 0o755), epoch(1)]);
    let mut followed = Fixture::of(all);
    for number in 10..10 + NAMES {
        let file = File::open(followed.tree(&number.to_string())).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let looked = followed.round(u64::MAX);
    assert_eq!(looked.iter().map(|one| one.undecided).sum::<u64>(), 0);
    for _ in 0..2 {
        let found = followed.settle();
        let expected = vec![What::Mode, What::Modified];
        assert!(found.iter().all(|(_, what)| *what == expected));
        if !found.is_empty() {
            assert_eq!(found.len() as u64, NAMES);
        }
        assert_eq!(
            followed.again(followed.rested()).mended,
            Vec::<PathBuf>::new()
        );
        assert!(followed.rolling.is_open());
    }
}

#[test]
fn what_has_just_changed_waits_for_the_log() {
    let mut followed = Fixture::new();
    fs::write(followed.tree("d/2"), "12345678").unwrap();
    let now = followed.now();
    let looked = followed.rolling.look(now, u64::MAX, &mut on).unwrap();
    assert!(looked.round && followed.rolling.is_open());
    // The log has had nothing since: nothing is to be looked at, and nothing differs.
    for _ in 0..5 {
        let looked = followed.again(now);
        assert_eq!((looked.bytes, looked.differing.len()), (0, 0));
    }
    assert!(followed.rolling.is_open());
    followed.say(data(102, 0, b"12345678"));
    let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000_000_007 * 102 + 0o640);
    let file = File::options().write(true).open(followed.tree("d/2"));
    let times = FileTimes::new().set_modified(modified);
    file.unwrap().set_times(times).unwrap();
    let looked = followed.again(followed.rested());
    assert_eq!((looked.differing.len(), looked.mended.len()), (0, 0));
    assert!(!followed.rolling.is_open(), "it is equal");
}

#[test]
fn what_was_moved_with_its_directory_waits_for_the_log() {
    let mut followed = Fixture::new();
    let [one, other, aside] = ["d-", "d--", "aside"].map(|name| followed.tree(name));
    let swap = || {
        for (from, to) in [(&one, &aside), (&other, &one), (&aside, &other)] {
            fs::rename(from, to).unwrap();
        }
    };
    // By the same paths there are other files: their own times are old.
    swap();
    followed.round(u64::MAX);
    assert!(followed.rolling.is_open());
    for _ in 0..5 {
        let looked = SystemTime::now();
        thread::sleep(Duration::from_millis(30));
        swap();
        swap();
        let caught = SyncPoint {
            epoch: 1,
            at: looked + Duration::from_millis(2010),
        };
        let again = followed.again(caught);
        assert_eq!((again.bytes > 0, again.differing.len()), (true, 0));
    }
    let found = followed.settle();
    assert!(found.iter().any(|(path, _)| path == "d-/1"), "{found:?}");
}

#[test]
fn it_ends_when_it_is_told_to_and_goes_on_where_it_was() {
    let mut followed = Fixture::new();
    let first = followed.rolling.look(followed.rested(), 30_000, &mut on);
    assert!(!first.unwrap().ended);
    damage(followed.tree("large"), 1);
    let ended = followed
        .rolling
        .look(followed.rested(), u64::MAX, &mut |_| ControlFlow::Break(()));
    assert!(ended.unwrap().ended && !followed.rolling.is_open());
    let rest = followed.rolling.look(followed.rested(), u64::MAX, &mut on);
    let rest = rest.unwrap();
    assert!(rest.round && rest.names < NAMES && followed.rolling.is_open());
}
