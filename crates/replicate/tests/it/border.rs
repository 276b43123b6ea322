//! Files that leave a tree, change outside of it unobserved, and come back, and files with names
//! both inside and outside.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::path::Path;

use replicate::capture::Options;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, shell};

/// On each file system, uses a folder with the followed directory `in`, and `out`. Runs `before`,
/// and then the steps, and compares the records with the tree after each step.
fn followed(before: &str, steps: &[&str]) {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs, Format::Tmpfs] {
        within(|bed| {
            let Some(folder) = bed.follow(format, "folder") else {
                return;
            };
            println!("{format:?}");
            shell(&folder, "mkdir in out");
            shell(&folder, before);
            follow(&folder, steps);
        });
    }
}

fn follow(folder: &Path, steps: &[&str]) {
    let tree = folder.join("in");
    let options = Options {
        look: true,
        ..Options::default()
    };
    let mut following = Following::start(&tree, options);
    following.check(&tree);
    for step in steps {
        println!("{step}");
        shell(folder, step);
        following.check(&tree);
    }
    // Nothing of files that have left is kept.
    let named = following.mirror.tree.files();
    let root = following.mirror.tree.root();
    let nameless = named.filter(|(file, node)| node.names.is_empty() && Some(*file) != root);
    assert_eq!(nameless.count(), 0);
}

#[test]
fn a_file_that_has_left_comes_back_as_it_is_then() {
    followed(
        "echo old >in/f; mkdir in/d; echo old >in/d/g; ln in/f in/h; rm in/h",
        &[
            "mv in/f out/f; echo new >>out/f; mv out/f in/f",
            "mv in/f out/f",
            "echo newer >>out/f; chmod 600 out/f",
            "mv out/f in/again",
            "mv in/d out/d; echo new >>out/d/g; mv out/d in/d",
            "mv in/d/g out/g; echo more >>out/g; mv in/d out/d; mv out/g out/d/g; mv out/d in/e",
            "mv in/e/g out/g; echo most >>out/g; ln out/g in/e/g; echo last >>out/g",
        ],
    );
}

#[test]
fn a_file_keeps_its_name_when_one_outside_is_taken_away() {
    followed(
        "echo f >in/f; ln in/f out/f; echo g >in/g; ln in/g out/g; echo h >in/h; ln in/h out/h; echo x >out/x",
        &[
            "mv in/f out/g2; rm out/f; echo new >>out/g2; mv out/g2 in/f; ln in/f out/f",
            "rm out/f",
            "echo more >>in/f",
            "mv out/x out/g",
            "echo more >>in/g; chmod 640 in/g",
            "rm out/h; rm in/h",
            "cp -al in out/copy; rm -rf out/copy; for file in f g; do echo last >>in/$file; done",
            "mv in/f out/f; ln out/f in/f; rm out/f; echo now >>in/f",
        ],
    );
}

#[test]
fn a_file_from_outside_takes_the_place_of_one_that_has_another_name() {
    followed(
        "mkdir in/d; echo g >in/d/g1; ln in/d/g1 in/d/g2; echo x >out/x; echo y >out/y",
        &[
            "mv out/x in/d/g1",
            "echo more >>in/d/g1; echo more >>in/d/g2",
            "ln in/d/g2 in/d/g3; mv out/y in/d/g3; echo last >>in/d/g3",
        ],
    );
}

#[test]
fn a_directory_that_was_made_outside_comes_into_the_tree() {
    followed(
        "mkdir in/a",
        &[
            "mkdir out/n; echo one >out/n/one; mkdir out/n/m; echo two >out/n/m/two",
            "mv in/a in/b; echo more >>out/n/one; echo more >>out/n/m/two; mv out/n in/n",
            "echo last >>in/n/one; mv in/n out/n; echo gone >>out/n/m/two; mv out/n/m in/m",
        ],
    );
}

#[test]
fn what_is_made_at_once_in_what_gets_a_default_list_has_it() {
    // The entries of a directory for the owner, the group and others, in the kernel's encoding.
    let list = "0x0200000001000700ffffffff04000500ffffffff20000000ffffffff";
    let script = format!(
        "python3 -c 'import os, sys; os.setxattr(sys.argv[1], \"system.posix_acl_default\", bytes.fromhex(\"{}\"))' in/d",
        &list[2..]
    );
    let nested = "mkdir -p in/d/a/b/c; echo f >in/d/a/f; echo g >in/d/a/b/g";
    followed(
        "mkdir in/d in/e",
        &[
            &format!("{script}; mkdir in/d/at; echo once >in/d/once"),
            nested,
        ],
    );
}

#[test]
fn what_changes_places_is_not_read_again() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        shell(
            &tree,
            "mkdir a b; head -c 100000 /dev/urandom >a/f; echo g >b/g; echo 1 >one; echo 2 >two",
        );
        let mut following = Following::start(&tree, Options::default());
        let before = following.check(&tree);
        for (one, other) in [("a", "b"), ("one", "two"), ("b/f", "two"), ("a", "b")] {
            let [one, other] = [one, other].map(|name| tree.join(name));
            let flags = RenameFlags::EXCHANGE;
            renameat_with(CWD, &one, CWD, &other, flags).unwrap();
            let progress = following.check(&tree);
            assert_eq!(progress.read_back, before.read_back);
        }
    });
}

#[test]
fn mounts_that_have_no_handles_are_left_out() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        shell(&tree, "mkdir proc d; mount -t proc proc proc; echo f >d/f");
        let mut following = Following::start(&tree, Options::default());
        following.catch_up();
        shell(&tree, "mkdir later; mount -t proc proc later; echo g >g");
        following.catch_up();
        shell(&tree, "umount proc later; echo h >proc/h; echo i >later/i");
        following.check(&tree);
    });
}
