//! Operations of io_uring workers, whose ends are not seen like those of calls: at the boundary of
//! the tree, and where a file is allocated.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use replicate::capture::Options;
use sys::require::{Class, skip};
use sys::uring;

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, shell};

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Whether there are workers; that there are none is reported as a skip.
fn workers(scratch: &Path) -> bool {
    let [from, to] = ["from", "to"].map(|name| scratch.join(name));
    fs::write(&from, "").unwrap();
    let there = uring::rename(&c_path(&from), &c_path(&to)).is_ok();
    if !there {
        skip(Class::Hardware, "io_uring is switched off");
    }
    there
}

/// How a directory is moved from one place to another.
#[derive(Clone, Copy, Debug)]
enum By {
    Call,
    Worker,
}

impl By {
    fn moves(self, from: &Path, to: &Path) {
        match self {
            Self::Call => fs::rename(from, to).unwrap(),
            Self::Worker => uring::rename(&c_path(from), &c_path(to)).unwrap(),
        }
    }
}

/// What becomes of a directory outside of the tree.
const CHANGES: &[&str] = &[
    "echo more >>f",
    "echo new >n",
    "rm e/g",
    "echo other >e/o; mv e/o f",
    "chmod 600 e/g",
    "mv e h",
    "touch -d 2001-02-03 .",
];

#[test]
fn a_directory_that_is_taken_out_and_back_is_read_again() {
    let ways = [
        (By::Worker, By::Call),
        (By::Call, By::Worker),
        (By::Worker, By::Worker),
    ];
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs, Format::Overlay] {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            if !workers(bed.scratch()) {
                return;
            }
            // Each once: of what the programs have seen in the tree, they know that it is not there.
            let script = "for i in {1..21}; do mkdir -p d$i/e; echo 1 >d$i/f; echo 2 >d$i/e/g; done; mkdir x";
            shell(&tree, script);
            let outside = tree.parent().unwrap().join("outside");
            fs::create_dir(&outside).unwrap();
            let mut following = Following::start(&tree, Options::default());
            following.check(&tree);
            let mut number = 0;
            for (out, back) in ways {
                for change in CHANGES {
                    number += 1;
                    let to = ["", "x"][number % 2];
                    println!("{format:?}, out by {out:?}, back by {back:?} to {to:?}: {change}");
                    let name = format!("d{number}");
                    let away = outside.join(&name);
                    out.moves(&tree.join(&name), &away);
                    shell(&away, change);
                    back.moves(&away, &tree.join(to).join(&name));
                    following.check(&tree);
                }
            }
        });
    }
}

#[test]
fn a_directory_that_comes_back_in_another_is_read_again() {
    for format in [Format::Ext4, Format::Xfs] {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            if !workers(bed.scratch()) {
                return;
            }
            println!("{format:?}");
            shell(&tree, "mkdir -p d/e; echo 1 >d/f; echo 2 >d/e/g");
            let other = tree.parent().unwrap().join("other");
            fs::create_dir(&other).unwrap();
            let mut following = Following::start(&tree, Options::default());
            following.check(&tree);
            By::Worker.moves(&tree.join("d"), &other.join("d"));
            shell(&other, "echo more >>d/f; echo 3 >d/e/h");
            By::Call.moves(&other, &tree.join("other"));
            following.check(&tree);
        });
    }
}

const PUNCH: i32 = 0x02 | 0x01;
const COLLAPSE: i32 = 0x08;
const ZERO: i32 = 0x10;
const INSERT: i32 = 0x20;

#[test]
fn what_workers_allocate_and_free_is_said() {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs] {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            if !workers(bed.scratch()) {
                return;
            }
            shell(
                &tree,
                "for i in 0 1 2 3 4; do head -c 1048576 /dev/urandom >f$i; done; sync",
            );
            let mut following = Following::start(&tree, Options::default());
            following.check(&tree);
            let modes = match format {
                // It supports neither of the others.
                Format::Btrfs => vec![0, PUNCH, ZERO],
                _ => vec![0, PUNCH, ZERO, COLLAPSE, INSERT],
            };
            for (number, mode) in modes.into_iter().enumerate() {
                println!("{format:?}, mode {mode:#x}");
                let path = tree.join(format!("f{number}"));
                let file = fs::File::options().write(true).open(path).unwrap();
                let offset = if mode == 0 { 2 << 20 } else { 64 << 10 };
                following.during(|| uring::fallocate(&file, mode, offset, 64 << 10).unwrap());
                following.check(&tree);
            }
        });
    }
}
