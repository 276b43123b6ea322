//! Changes of a tree as a whole: mounts within it, and whether it is still at its path.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::path::Path;
use std::thread;

use replicate::apply::{self, Replica};
use replicate::capture::{Error, INTERVAL, Options};
use replicate::log::{self, Writer};
use replicate::record::{Change, Entry, File};
use sys::require::{Class, skip};

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, shell};

#[test]
fn what_a_mount_has_hidden_is_there_again_when_it_is_gone() {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs, Format::Overlay] {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            println!("{format:?}");
            shell(&tree, "mkdir -p a/d; echo x >a/d/f; echo y >g");
            let mut following = Following::start(&tree, Options::default());
            following.check(&tree);
            for _ in 0..2 {
                shell(
                    &tree,
                    "mount -t tmpfs none a/d; echo 1 >a/h; echo other >a/d/o",
                );
                following.catch_up();
                shell(&tree, "umount a/d");
                following.check(&tree);
                shell(&tree, "echo more >>a/d/f; mount --bind g a/d/f; rm a/h");
                following.catch_up();
                shell(&tree, "umount a/d/f; echo most >>a/d/f");
                following.check(&tree);
            }
        });
    }
}

#[test]
fn what_a_mount_hides_for_a_while_that_nobody_sees_is_there_again() {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs, Format::Overlay] {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            println!("{format:?}");
            shell(
                &tree,
                "head -c 1048576 /dev/urandom >large; mkdir -p sub/d; echo x >sub/d/f; echo y >sub/file",
            );
            let mut following = Following::start(&tree, Options::default());
            // During the read, a mount that comes and goes has no effect.
            let (mut hidden, mut shown) = (false, false);
            for _ in 0..1000 {
                let Following {
                    capture, mirror, ..
                } = &mut following;
                capture
                    .poll(&mut |entry| {
                        let what = match &entry {
                            Entry::Change(Change::Data { .. }) if !hidden => {
                                hidden = true;
                                "mount -t tmpfs none sub/d"
                            }
                            Entry::Change(Change::Link { name, .. })
                                if hidden && !shown && name.as_bytes() == b"file" =>
                            {
                                shown = true;
                                "umount sub/d"
                            }
                            _ => "",
                        };
                        shell(&tree, what);
                        mirror.fold(&entry);
                    })
                    .unwrap();
                if shown {
                    break;
                }
                thread::sleep(INTERVAL);
            }
            assert!(hidden && shown);
            following.check(&tree);
        });
    }
}

#[test]
fn a_name_is_as_the_disk_has_it_where_case_is_ignored() {
    if !Path::new("/sys/fs/ext4/features/casefold").exists() {
        return skip(Class::Hardware, "on this kernel ext4 ignores no case");
    }
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4Folded, "tree") else {
            return;
        };
        shell(
            &tree,
            "mkdir d; chattr +F d; echo 1 >d/Name; echo 2 >d/Other",
        );
        // The kernel has cached the names that programs use.
        let again =
            "umount tree; mount -o loop tree.image tree; stat tree/tree/d/NAME tree/tree/d/OTHER";
        shell(bed.scratch(), again);
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        shell(&tree, "echo more >>d/name");
        following.check(&tree);
        // The read itself has been reported as well.
        following.catch_up();
        shell(&tree, "echo 3 >file; mv file d/NAME");
        following.check(&tree);
        shell(&tree, "mv d/OTHER d/third; rm d/name; echo 4 >d/nAME");
        following.check(&tree);
        shell(&tree, "echo 5 >d/Two; ln d/Two two");
        following.check(&tree);
        following.catch_up();
        // Otherwise the kernel would have the remaining name in its cache.
        shell(&tree, "sync; echo 2 >/proc/sys/vm/drop_caches; rm d/TWO");
        following.check(&tree);
    });
}

#[test]
fn no_replica_is_made_where_case_is_ignored() {
    if !Path::new("/sys/fs/ext4/features/casefold").exists() {
        return skip(Class::Hardware, "on this kernel ext4 ignores no case");
    }
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4Folded, "tree") else {
            return;
        };
        shell(&tree, "mkdir replica; chattr +F replica");
        let (log, to) = (bed.scratch().join("log"), tree.join("replica"));
        let mut writer = Writer::open(&log, log::Options::default()).unwrap();
        let root = File {
            inode: 2,
            generation: 0,
        };
        for entry in [Entry::Start { root }, Entry::Epoch { number: 1 }] {
            writer.append(0, entry).unwrap();
        }
        drop(writer);
        let refused = Replica::open(&log, &to, apply::Options::default())
            .and_then(|mut replica| replica.apply(None))
            .unwrap_err();
        assert!(matches!(refused, apply::Error::Case(_)), "{refused}");
    });
}

#[test]
fn a_tree_that_is_another_is_not_followed_on() {
    let steps = [
        "mv tree old; cp -a old tree",
        "mv tree old",
        "mount -t tmpfs none tree",
        "umount --lazy .",
    ];
    for step in steps {
        within(|bed| {
            let Some(tree) = bed.follow(Format::Ext4, "disk") else {
                return;
            };
            println!("{step}");
            let disk = tree.parent().unwrap();
            let mut following = Following::start(&tree, Options::default());
            following.check(&tree);
            shell(disk, step);
            let ended = loop {
                match following.capture.poll(&mut |_| ()) {
                    Ok(_) => thread::sleep(INTERVAL),
                    Err(error) => break error,
                }
            };
            assert!(matches!(ended, Error::Moved(_)), "{ended}");
        });
    }
}
