//! The tree of a log is rebuilt and compared with the log, and with a folder without the log. The
//! rebuilt tree is always removed.

use std::fs::{self, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use replicate::log::{self, Writer};
use replicate::record::{Entry, Kind};
use replicate::restore::restore;
use replicate::verify::{
    BLOCK, Error, Progress, Rebuilt, Scope, Step, Verdict, What, verify_rebuilt,
};
use tempfile::TempDir;

use crate::bed::file_system::within;
use crate::common::{ROOT, data, epoch, link, mode, new, start, unlink};

const LARGE: usize = 3 * BLOCK + 7;

/// A log of two epochs, and an empty place.
struct Fixture {
    folder: TempDir,
}

fn entries() -> Vec<Entry> {
    let bytes: Vec<u8> = (0..LARGE).map(|at| (at / 3).to_le_bytes()[0]).collect();
    vec![
        start(),
        new(10, Kind::Directory),
        new(11, Kind::Regular),
        data(11, 0, &bytes),
        new(12, Kind::Symlink(b"nowhere".to_vec())),
        link(ROOT.inode, "directory", 10),
        link(10, "large", 11),
        link(ROOT.inode, "again", 11),
        link(ROOT.inode, "link", 12),
        mode(11, 0o640),
        mode(12, 0),
        mode(10, 0o500),
        mode(ROOT.inode, 0o755),
        epoch(1),
        data(11, 5, b"later"),
        mode(11, 0o600),
        unlink(ROOT.inode, "link"),
        mode(ROOT.inode, 0o750),
        epoch(2),
    ]
}

impl Fixture {
    fn new() -> Self {
        let made = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(made.place()).unwrap();
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

    fn place(&self) -> PathBuf {
        self.folder.path().join("place")
    }

    fn restored(&self, epoch: u64) -> PathBuf {
        let to = self.folder.path().join(format!("epoch-{epoch}"));
        restore(&self.log(), Some(epoch), &to, Default::default()).unwrap();
        to
    }

    fn verify(&self, epoch: Option<u64>, against: Option<&Path>) -> Result<Rebuilt, Error> {
        self.watched(epoch, against, &mut |_, _| ControlFlow::Continue(()))
    }

    fn watched(
        &self,
        epoch: Option<u64>,
        against: Option<&Path>,
        watch: &mut dyn FnMut(Step, &Progress) -> ControlFlow<()>,
    ) -> Result<Rebuilt, Error> {
        let place = self.place();
        let places = (place.as_path(), against);
        let rebuilt = verify_rebuilt(&self.log(), epoch, places, Scope::default(), watch);
        let left: Vec<_> = fs::read_dir(&place).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        rebuilt
    }
}

fn found(verdict: &Verdict) -> Vec<(&str, What)> {
    let listed = verdict.differences.iter();
    listed
        .map(|one| (one.path.to_str().unwrap(), one.what))
        .collect()
}

#[test]
fn each_epoch_is_made_as_the_log_says() {
    let made = Fixture::new();
    for (asked, epoch, names) in [(None, 2, 3), (Some(1), 1, 4), (Some(2), 2, 3)] {
        let rebuilt = made.verify(asked, None).unwrap();
        assert!(rebuilt.equal(), "{rebuilt:?}");
        assert_eq!((rebuilt.log.epoch, rebuilt.names), (epoch, names));
        assert_eq!(rebuilt.log.names, names + 1, "the root, too");
        assert!(rebuilt.bytes >= LARGE as u64, "{rebuilt:?}");
        assert!(rebuilt.against.is_none());
        let (log, folder) = rebuilt.log.hashes.unwrap();
        assert_eq!(log, folder);
    }
    let none = made.verify(Some(3), None);
    let epoch = matches!(none, Err(Error::Log(log::Error::NoEpoch { epoch: 3, .. })));
    assert!(epoch, "{none:?}");
}

#[test]
fn a_folder_is_compared_with_what_was_made_of_its_epoch() {
    let made = Fixture::new();
    let first = made.restored(1);
    let rebuilt = made.verify(Some(1), Some(&first)).unwrap();
    assert!(rebuilt.equal(), "{rebuilt:?}");
    let against = rebuilt.against.unwrap();
    assert_eq!((against.epoch, against.names), (1, 5));
    assert_eq!(against.hashes, rebuilt.log.hashes, "one hash of all three");

    // The log is complete, and the folder is of the epoch before.
    let rebuilt = made.verify(None, Some(&first)).unwrap();
    assert!(rebuilt.log.equal() && !rebuilt.equal(), "{rebuilt:?}");
    let expected = [
        ("", What::Mode),
        ("", What::Modified),
        ("again", What::Mode),
        ("again", What::Modified),
        ("again", What::Bytes),
        ("directory/large", What::Mode),
        ("directory/large", What::Modified),
        ("link", What::Extra),
    ];
    assert_eq!(found(rebuilt.against.as_ref().unwrap()), expected);
}

#[test]
fn what_is_damaged_in_the_folder_is_found_and_nothing_else() {
    let made = Fixture::new();
    let folder = made.restored(2);
    let damaged = fs::OpenOptions::new()
        .write(true)
        .open(folder.join("again"))
        .unwrap();
    let before = damaged.metadata().unwrap().modified().unwrap();
    damaged.write_all_at(b"!", 2 * BLOCK as u64 + 9).unwrap();
    damaged.set_modified(before).unwrap();
    let root = fs::metadata(&folder).unwrap().modified().unwrap();
    fs::write(folder.join("more"), "").unwrap();
    let top = fs::File::open(&folder).unwrap();
    top.set_modified(root).unwrap();
    let rebuilt = made.verify(None, Some(&folder)).unwrap();
    assert!(rebuilt.log.equal());
    let against = rebuilt.against.unwrap();
    assert_eq!(
        found(&against),
        [("again", What::Bytes), ("more", What::Extra)]
    );
    let block = BLOCK as u64;
    assert_eq!(against.differences[0].ranges, [(2 * block, block)]);
}

#[test]
fn what_is_made_otherwise_than_the_log_says_is_found() {
    let made = Fixture::new();
    let place = made.place();
    let mut spoiled = false;
    // Like a file system that does not keep what was written to it.
    let mut spoil = |step, _: &Progress| {
        if step == Step::Log && !spoiled {
            spoiled = true;
            let made = fs::read_dir(&place).unwrap().next().unwrap().unwrap();
            assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            let large = made.path().join("tree/directory/large");
            fs::set_permissions(large, Permissions::from_mode(0o644)).unwrap();
        }
        ControlFlow::Continue(())
    };
    let rebuilt = made.watched(None, None, &mut spoil).unwrap();
    assert!(!rebuilt.equal());
    let expected = [("again", What::Mode), ("directory/large", What::Mode)];
    assert_eq!(found(&rebuilt.log), expected);
}

#[test]
fn a_damaged_log_is_an_error() {
    let made = Fixture::new();
    let segments = fs::read_dir(made.log()).unwrap();
    let segments: Vec<_> = segments
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.metadata().unwrap().len() > LARGE as u64)
        .collect();
    let [segment] = &segments[..] else {
        panic!("{segments:?}");
    };
    let mut bytes = fs::read(segment).unwrap();
    bytes[LARGE / 2] ^= 1;
    fs::write(segment, bytes).unwrap();
    let damaged = made.verify(None, None);
    let damage = matches!(damaged, Err(Error::Log(log::Error::Damaged { .. })));
    assert!(damage, "{damaged:?}");
}

#[test]
fn who_wants_no_more_gets_nothing_or_a_part() {
    let made = Fixture::new();
    let ended = made.watched(None, None, &mut |_, _| ControlFlow::Break(()));
    // If the tree was complete before the watcher could end it, the comparison ends.
    match ended {
        Err(Error::Ended) => {}
        Ok(rebuilt) => assert!(rebuilt.log.partial, "{rebuilt:?}"),
        Err(other) => panic!("{other}"),
    }
    let folder = made.restored(2);
    for (at, compared) in [(Step::Log, false), (Step::Against, true)] {
        let ended = made.watched(None, Some(&folder), &mut |step, _| match step == at {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        let rebuilt = ended.unwrap();
        assert!(!rebuilt.equal());
        assert_eq!(rebuilt.log.partial, !compared);
        assert_eq!(rebuilt.against.is_some_and(|one| one.partial), compared);
    }
}

#[test]
fn it_is_not_made_within_what_is_read() {
    let made = Fixture::new();
    let folder = made.restored(2);
    let watch = &mut |_, _: &Progress| ControlFlow::Continue(());
    let log = made.log();
    for (place, against) in [(&folder, Some(folder.as_path())), (&log, None)] {
        let places = (place.as_path(), against);
        let refused = verify_rebuilt(&log, None, places, Scope::default(), watch);
        let inside = matches!(refused, Err(Error::Inside { .. }));
        assert!(inside, "{refused:?}");
    }
}

#[test]
fn it_is_refused_where_there_is_no_room() {
    within(|bed| {
        let made = Fixture::new();
        let small = bed.scratch().join("small");
        fs::create_dir(&small).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=128k", "small"])
            .arg(&small)
            .status();
        assert!(mounted.unwrap().success());
        let watch = &mut |_, _: &Progress| ControlFlow::Continue(());
        let places = (small.as_path(), None);
        let refused = verify_rebuilt(&made.log(), None, places, Scope::default(), watch);
        let Err(error @ Error::Room { has, needs, .. }) = &refused else {
            panic!("{refused:?}");
        };
        assert!(*has <= 128 << 10 && *needs > LARGE as u64, "{error}");
        assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    });
}
