//! A btrfs subvolume below a tree is not part of it, for a capture and for a comparison.

use std::ops::ControlFlow;

use replicate::verify::{self, Progress, Scope};

use crate::bed::file_system::{Format, within};
use crate::bed::recording::Recording;
use crate::follow::shell;

#[test]
fn a_subvolume_is_left_out_by_who_captures_and_by_who_compares() {
    within(|bed| {
        let Some(disk) = bed.follow(Format::Btrfs, "btrfs") else {
            return;
        };
        let (tree, log) = (disk.join("tree"), bed.scratch().join("log"));
        std::fs::create_dir(&tree).unwrap();
        shell(
            &tree,
            "mkdir d; echo x >file; btrfs -q subvolume create d/sub; echo y >d/sub/within",
        );
        let mut recording = Recording::start(&tree, &log);
        recording.catch_up();
        shell(
            &tree,
            "echo z >>file; btrfs -q subvolume create later; echo y >later/within",
        );
        recording.catch_up();
        let on = &mut |_: &Progress| ControlFlow::Continue(());
        let verdict = verify::verify(&log, None, &tree, Scope::default(), on).unwrap();
        assert!(verdict.equal(), "{verdict:#?}");
        // The root, `d` and `file`; two subvolumes.
        assert_eq!((verdict.names, verdict.mounted), (3, 2), "{verdict:#?}");
        let summary = verify::hash_log(&log, None, Scope::default(), on).unwrap();
        let patterns = replicate::patterns::Patterns::default();
        let folder = verify::hash_folder(&tree, &patterns, Scope::default(), on).unwrap();
        assert_eq!(summary.hash, folder.hash);
    });
}
