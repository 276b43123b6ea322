//! Folders of logs and replicas that another user could change do not lead a privileged program
//! elsewhere.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use replicate::apply::{Options, Replica};
use replicate::log::{Reader, Writer, compact};
use replicate::record::{Entry, Kind};
use replicate::restore::{self, restore};

use crate::applying::folder;
use crate::common::{data, epoch, link, mode, new, start, unlink};
use crate::histories;

const OTHER: Option<u32> = Some(65534);
const SECRET: &str = "root's file";

/// A log of one file, a file that must not change, and the place of the replica.
struct Place {
    log: PathBuf,
    victim: PathBuf,
    to: PathBuf,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = folder();
        let place = Self {
            log: folder.path().join("log"),
            victim: folder.path().join("victim"),
            to: folder.path().join("replica"),
            _folder: folder,
        };
        histories::write(&place.log, &one_file());
        fs::write(&place.victim, SECRET).unwrap();
        fs::set_permissions(&place.victim, fs::Permissions::from_mode(0o644)).unwrap();
        place
    }

    fn apply(&self) -> Result<(), String> {
        let replica = Replica::open(&self.log, &self.to, Options::default());
        let applied = replica.and_then(|mut replica| replica.apply(None));
        applied.map(drop).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check_victim(&self) {
        assert_eq!(fs::read_to_string(&self.victim).unwrap(), SECRET);
        let mode = fs::metadata(&self.victim).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o644);
    }
}

fn one_file() -> Vec<Entry> {
    vec![
        start(),
        mode(2, 0o755),
        new(3, Kind::Regular),
        data(3, 0, b"bytes"),
        mode(3, 0o644),
        link(2, "a", 3),
        epoch(1),
    ]
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Creates a file of some kind at a path.
type Create<'a> = Box<dyn Fn(&Path) + 'a>;

/// Files that another user could put in place of a state or a lock, each with its name in the error.
fn traps(victim: &Path) -> Vec<(&'static str, Create<'_>)> {
    let node = |arguments: &'static [&'static str]| {
        move |at: &Path| {
            let made = Command::new("mknod").arg(at).args(arguments).status();
            assert!(made.unwrap().success());
        }
    };
    vec![
        (
            "a symlink is not followed",
            Box::new(move |at: &Path| symlink(victim, at).unwrap()),
        ),
        (
            "a symlink is not followed",
            Box::new(move |at: &Path| symlink(victim.with_extension("none"), at).unwrap()),
        ),
        (
            "a hard link",
            Box::new(move |at: &Path| fs::hard_link(victim, at).unwrap()),
        ),
        ("no regular file", Box::new(node(&["p"]))),
        ("no regular file", Box::new(node(&["c", "1", "3"]))),
        (
            "no regular file",
            Box::new(|at: &Path| fs::create_dir(at).unwrap()),
        ),
        (
            "belongs to user 65534",
            Box::new(|at: &Path| {
                fs::write(at, "").unwrap();
                chown(at, OTHER, OTHER).unwrap();
            }),
        ),
    ]
}

#[test]
fn a_replica_in_a_folder_that_another_user_made_is_refused() {
    if !sys::require::root() {
        return;
    }
    let place = Place::new();
    for name in ["lock", "state"] {
        fs::create_dir(&place.to).unwrap();
        symlink(&place.victim, place.to.join(name)).unwrap();
        chown(&place.to, OTHER, OTHER).unwrap();
        let refused = place.apply().unwrap_err();
        assert!(refused.contains("belongs to user 65534"), "{refused}");
        let to = place.to.as_path();
        let refused = restore(&place.log, None, to, restore::Options::default()).unwrap_err();
        assert!(
            refused.to_string().contains("belongs to user 65534"),
            "{refused}"
        );
        let refused = Writer::open(to, replicate::log::Options::default()).unwrap_err();
        assert!(
            refused.to_string().contains("belongs to user 65534"),
            "{refused}"
        );
        let refused = Reader::open(to).unwrap_err();
        assert!(
            refused.to_string().contains("belongs to user 65534"),
            "{refused}"
        );
        assert_eq!(names(&place.to), 1);
        place.check_victim();
        fs::remove_dir_all(&place.to).unwrap();
    }
}

#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    let place = Place::new();
    fs::create_dir(&place.to).unwrap();
    for mode in [0o775, 0o757, 0o1777] {
        fs::set_permissions(&place.to, fs::Permissions::from_mode(mode)).unwrap();
        let refused = place.apply().unwrap_err();
        assert!(refused.contains("chmod go-w"), "{refused}");
        let refused = Writer::open(&place.to, replicate::log::Options::default()).unwrap_err();
        assert!(refused.to_string().contains("chmod go-w"), "{refused}");
        assert_eq!(names(&place.to), 0);
    }
    fs::set_permissions(&place.to, fs::Permissions::from_mode(0o755)).unwrap();
    place.apply().unwrap();
}

#[test]
fn a_folder_in_one_that_everybody_writes_to_is_made() {
    let place = Place::new();
    let shared = place.to.with_file_name("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let place = Place {
        to: shared.join("replica"),
        ..place
    };
    place.apply().unwrap();
}

#[test]
fn nothing_but_a_file_of_its_own_is_taken_for_the_state_or_the_lock_of_a_replica() {
    if !sys::require::root() {
        return;
    }
    let place = Place::new();
    for name in ["lock", "state"] {
        for (what, trap) in traps(&place.victim) {
            fs::create_dir(&place.to).unwrap();
            trap(&place.to.join(name));
            let refused = place.apply().unwrap_err();
            assert!(refused.contains(what), "{name}: {what}: {refused}");
            assert!(refused.contains(name), "{refused}");
            place.check_victim();
            assert!(!place.victim.with_extension("none").exists());
            fs::remove_dir_all(&place.to).unwrap();
        }
    }
}

#[test]
fn nothing_but_a_file_of_its_own_is_taken_for_a_segment_or_a_lock_of_a_log() {
    if !sys::require::root() {
        return;
    }
    let place = Place::new();
    let options = replicate::log::Options::default();
    let segment = "00000000000000000001.log";
    for name in ["lock", segment] {
        for (what, trap) in traps(&place.victim) {
            if name == segment && what == "a hard link" {
                continue;
            }
            let at = place.log.join(name);
            let kept = fs::read(&at).unwrap();
            fs::remove_file(&at).unwrap();
            trap(&at);
            let refused = Writer::open(&place.log, options).unwrap_err().to_string();
            assert!(refused.contains(what), "{name}: {what}: {refused}");
            if name == segment {
                let refused = place.apply().unwrap_err();
                assert!(refused.contains(what), "{what}: {refused}");
            }
            place.check_victim();
            match at.is_dir() {
                true => fs::remove_dir(&at).unwrap(),
                false => fs::remove_file(&at).unwrap(),
            }
            fs::write(&at, kept).unwrap();
        }
    }
    let other = place.victim.with_extension("other");
    fs::hard_link(place.log.join(segment), &other).unwrap();
    let refused = Writer::open(&place.log, options).unwrap_err().to_string();
    assert!(refused.contains("a hard link"), "{refused}");
    place.apply().unwrap();
}

#[test]
fn compaction_replaces_what_has_the_name_of_its_files() {
    let place = Place::new();
    let mut writer = Writer::open(&place.log, replicate::log::Options::default()).unwrap();
    for number in 2..4 {
        writer.append(5, mode(3, 0o600)).unwrap();
        writer.append(5, epoch(number)).unwrap();
    }
    writer.seal().unwrap();
    for name in ["compact.tmp", "compact.epoch"] {
        symlink(&place.victim, place.log.join(name)).unwrap();
    }
    compact(&place.log, 2).unwrap();
    place.check_victim();
    place.apply().unwrap();
}

#[test]
fn a_symlink_of_another_user_leads_to_no_folder() {
    if !sys::require::root() {
        return;
    }
    let place = Place::new();
    let real = place.to.with_file_name("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, &place.to).unwrap();
    std::os::unix::fs::lchown(&place.to, OTHER, OTHER).unwrap();
    for to in [place.to.clone(), place.to.join("below")] {
        let place = Place {
            log: place.log.clone(),
            victim: place.victim.clone(),
            to,
            _folder: folder(),
        };
        let refused = place.apply().unwrap_err();
        assert!(refused.contains("a symlink of user 65534"), "{refused}");
        assert_eq!(names(&real), 0);
    }
    std::os::unix::fs::lchown(&place.to, Some(0), Some(0)).unwrap();
    place.apply().unwrap();
    assert_eq!(fs::read(real.join("tree/a")).unwrap(), b"bytes");
}

#[test]
fn a_replica_whose_folder_was_exchanged_is_applied_to_where_it_is() {
    let place = Place::new();
    let mut replica = Replica::open(&place.log, &place.to, Options::default()).unwrap();
    let (moved, elsewhere) = (
        place.to.with_extension("moved"),
        place.to.with_extension("dir"),
    );
    fs::create_dir_all(elsewhere.join("tree")).unwrap();
    fs::rename(&place.to, &moved).unwrap();
    symlink(&elsewhere, &place.to).unwrap();
    replica.apply(None).unwrap().unwrap();
    histories::write(&place.log, &[unlink(2, "a"), link(2, "b", 3), epoch(2)]);
    replica.apply(None).unwrap().unwrap();
    replica.end().unwrap();
    assert_eq!(fs::read(moved.join("tree/b")).unwrap(), b"bytes");
    assert_eq!(names(&elsewhere), 1);
    assert_eq!(names(&elsewhere.join("tree")), 0);
}

#[test]
fn a_log_that_makes_a_symlink_first_does_not_write_through_it() {
    let place = Place::new();
    let log = place.log.with_extension("forged");
    let outside = place
        .victim
        .parent()
        .unwrap()
        .as_os_str()
        .as_encoded_bytes();
    let symlink = || Kind::Symlink(outside.to_vec());
    let steps = [
        vec![
            start(),
            mode(2, 0o755),
            new(10, symlink()),
            mode(10, 0o777),
            link(2, "d", 10),
            epoch(1),
        ],
        // A directory in its place, with a file of the victim's name.
        vec![
            unlink(2, "d"),
            new(12, Kind::Directory),
            mode(12, 0o755),
            link(2, "d", 12),
            new(13, Kind::Regular),
            data(13, 0, b"evil"),
            mode(13, 0o666),
            link(12, "victim", 13),
            epoch(2),
        ],
        // The symlink is back, and the file behind the name changes.
        vec![
            link(2, "e", 12),
            link(2, "d", 10),
            data(13, 0, b"more"),
            mode(13, 0o777),
            epoch(3),
        ],
        vec![
            unlink(2, "d"),
            link(2, "d", 12),
            unlink(12, "victim"),
            epoch(4),
        ],
    ];
    let mut replica = None;
    for (step, number) in steps.iter().zip(1..) {
        histories::write(&log, step);
        let open = || Replica::open(&log, &place.to, Options::default()).unwrap();
        replica
            .get_or_insert_with(open)
            .apply(None)
            .unwrap()
            .unwrap();
        let restored = place.to.with_file_name(format!("restored{number}"));
        restore(&log, None, &restored, restore::Options::default()).unwrap();
        place.check_victim();
    }
    // The contents behind a symbolic link are not a tree.
    let log = place.log.with_extension("other");
    let mut entries = steps[0].clone();
    entries.insert(5, new(13, Kind::Regular));
    entries.insert(6, link(10, "victim", 13));
    histories::write(&log, &entries);
    let to = place.to.with_file_name("other");
    let refused = restore(&log, None, &to, restore::Options::default()).unwrap_err();
    assert!(refused.to_string().contains("directory"), "{refused}");
    place.check_victim();
}
