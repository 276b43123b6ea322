//! A tree is captured while a program changes it, and the last epoch of the log is restored.

use replicate::log;
use replicate::restore::{self, Error, restore};

use crate::bed::file_system::{Format, within};
use crate::bed::recording::Recording;
use crate::bed::trees::{What, differences};
use crate::bed::workload::Workload;

const AS_ROOT: restore::Options = restore::Options { privileged: true };

#[test]
fn at_each_barrier_the_log_has_the_tree() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "ext4") else {
            return;
        };
        let (tree, log) = (disk.join("tree"), disk.join("log"));
        std::fs::create_dir(&tree).unwrap();
        let mut recording = Recording::start(&tree, &log);
        let mut workload = Workload::start(&tree, 3, 100, 25);
        let mut barrier = 0;
        while recording.during(|| workload.next()).is_some() {
            recording.catch_up();
            barrier += 1;
            let copy = disk.join(format!("copy {barrier}"));
            let restored = restore(&log, None, &copy, AS_ROOT).unwrap();
            let left = restored.owners_left + restored.devices_left + restored.set_id_left;
            assert_eq!(left + restored.extended_left, 0, "{restored:?}");
            let mut differ = differences(&tree, &copy);
            // Where blocks lie is the file system's to choose.
            differ.retain(|one| one.what != What::Holes);
            assert!(differ.is_empty(), "barrier {barrier}: {differ:#?}");
        }
        assert_eq!(barrier, 4);
    });
}

#[test]
fn what_is_dangerous_is_left_out_unless_asked_for() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "ext4") else {
            return;
        };
        let (tree, log) = (disk.join("tree"), disk.join("log"));
        std::fs::create_dir(&tree).unwrap();
        let made = std::process::Command::new("sh")
            .arg("-euc")
            .arg(
                "mknod null c 1 3; echo x >program; chmod 6755 program; ln -s /etc away
                 ln program again; mkdir -m 2755 shared; touch program",
            )
            .current_dir(&tree)
            .status();
        assert!(made.unwrap().success());
        let mut recording = Recording::start(&tree, &log);
        recording.catch_up();
        let plain = disk.join("plain");
        let restored = restore(&log, None, &plain, restore::Options::default()).unwrap();
        assert_eq!((restored.devices_left, restored.set_id_left), (1, 1));
        assert_eq!(restored.names, 4);
        let whats: Vec<_> = differences(&tree, &plain)
            .into_iter()
            .map(|one| (one.path.display().to_string(), one.what))
            .collect();
        let expected = [
            ("again", What::Mode),
            ("null", What::Missing),
            ("program", What::Mode),
        ];
        let expected = expected.map(|(path, what)| (path.to_owned(), what));
        assert_eq!(whats, expected);
        let whole = disk.join("whole");
        restore(&log, None, &whole, AS_ROOT).unwrap();
        assert_eq!(differences(&tree, &whole), []);
        // Existing files are never overwritten.
        let again = restore(&log, None, &whole, AS_ROOT);
        assert!(matches!(again, Err(Error::Occupied(_))), "{again:?}");
        let none = restore(&log, Some(99), &disk.join("none"), AS_ROOT);
        assert!(
            matches!(none, Err(Error::Log(log::Error::NoEpoch { epoch: 99, .. }))),
            "{none:?}"
        );
        assert!(!disk.join("none").exists());
    });
}
