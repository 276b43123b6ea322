//! The workload performs all of its operations on each file system. The comparison of trees agrees
//! with a plain copy of each state and finds each single difference.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, XattrFlags, fallocate, mknodat, setxattr};

use crate::bed::file_system::{Format, within};
use crate::bed::trees::{What, differences};
use crate::bed::workload::Workload;

/// Kinds of steps, each way of writing, copying, renaming and so on counted by itself.
const KINDS: usize = 67;

/// What a file system may be unable to do.
fn lacking(format: Format) -> &'static [&'static str] {
    match format {
        Format::Ext4
        | Format::Ext4Journal
        | Format::Ext4Inline
        | Format::Ext4Folded
        | Format::Overlay => &["Copy Clone"],
        Format::Xfs => &[],
        Format::Btrfs => &["Allocate Collapse", "Allocate Insert"],
        Format::Tmpfs => &[
            "Allocate Collapse",
            "Allocate Insert",
            "Allocate Zero",
            "Allocate ZeroKeepSize",
            "Copy Clone",
            // Before Linux 6.6.
            "Write Direct",
            "Write RingDirect",
        ],
    }
}

#[test]
fn every_kind_of_step_succeeds_on_every_file_system() {
    within(|bed| {
        for format in Format::ALL {
            let name = format!("{format:?}");
            let Some(tree) = bed.mount(format, &name) else {
                continue;
            };
            let mut tally: BTreeMap<String, [u32; 2]> = BTreeMap::new();
            let mut workload = Workload::start(&tree, 1, 1500, 1500);
            while let Some(steps) = workload.next() {
                for step in steps {
                    let succeeded = step.rsplit_once(": ").unwrap().1.parse::<u64>().is_ok();
                    tally.entry(kind(&step)).or_default()[usize::from(succeeded)] += 1;
                }
            }
            assert_eq!(tally.len(), KINDS, "{tally:?}");
            let never = tally.iter().filter(|(_, [_, succeeded])| *succeeded == 0);
            let never: Vec<_> = never
                .map(|(kind, _)| kind.as_str())
                .filter(|kind| !lacking(format).contains(kind))
                .collect();
            assert!(never.is_empty(), "{name}: {never:?} of {tally:?}");
        }
    });
}

/// `Write Spliced` of `7 Write { path: .., how: Spliced }: 100`.
fn kind(step: &str) -> String {
    let operation = step.split(' ').nth(1).unwrap();
    let how = step.rsplit_once(": ").unwrap().0.rsplit_once("how: ");
    match how {
        Some((_, how)) => format!("{operation} {}", how.trim_end_matches(" }")),
        None => operation.to_owned(),
    }
}

#[test]
fn a_seed_takes_the_same_steps_again() {
    within(|bed| {
        let [first, second] = ["first", "second"].map(|name| {
            let tree = bed.mount(Format::Ext4, name)?;
            Workload::start(&tree, 3, 300, 300).next()
        });
        assert!(first.is_none() || first.as_ref().unwrap().len() == 300);
        assert_eq!(first, second);
    });
}

#[test]
fn a_copy_at_each_barrier_is_equal() {
    within(|bed| {
        for format in Format::ALL {
            let name = format!("{format:?}");
            let Some(tree) = bed.mount(format, &name) else {
                continue;
            };
            let mut workload = Workload::start(&tree, 2, 200, 40);
            let mut barriers = 0;
            while let Some(steps) = workload.next() {
                barriers += 1;
                let copy = tree.with_file_name(format!("copy{barriers}"));
                succeed(Command::new("cp").arg("-a").arg(&tree).arg(&copy));
                rustix::fs::syncfs(File::open(&tree).unwrap()).unwrap();
                let found: Vec<_> = differences(&tree, &copy)
                    .into_iter()
                    .filter(|difference| difference.what != What::Holes)
                    .collect();
                assert!(found.is_empty(), "{name}: {found:#?} after {steps:#?}");
            }
            assert_eq!(barriers, 5, "{name}");
        }
    });
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

/// A way to make two trees differ, and as what it must be reported.
type Change = (What, fn(&Path));

const CHANGES: &[Change] = &[
    (What::Missing, |tree| {
        fs::remove_file(tree.join("fifo")).unwrap();
    }),
    (What::Extra, |tree| {
        fs::write(tree.join("more"), "").unwrap();
    }),
    (What::Kind, |tree| {
        fs::remove_file(tree.join("fifo")).unwrap();
        fs::write(tree.join("fifo"), "").unwrap();
    }),
    (What::Size, |tree| file(tree, "a").set_len(10_001).unwrap()),
    (What::Bytes, |tree| {
        file(tree, "a").write_all_at(b"!", 9_999).unwrap();
    }),
    (What::Mode, |tree| {
        let mode = Permissions::from_mode(0o4600);
        fs::set_permissions(tree.join("a"), mode).unwrap();
    }),
    (What::Owner, |tree| {
        lchown(tree.join("link"), None, Some(7)).unwrap();
    }),
    (What::Modified, |tree| {
        let later = SystemTime::UNIX_EPOCH + Duration::from_nanos(1);
        let times = FileTimes::new().set_modified(later);
        File::open(tree.join("folder"))
            .unwrap()
            .set_times(times)
            .unwrap();
    }),
    (What::Extended, |tree| {
        setxattr(tree.join("a"), "user.x", b"", XattrFlags::empty()).unwrap();
    }),
    (What::Links, |tree| {
        fs::remove_file(tree.join("b")).unwrap();
        succeed(
            Command::new("cp")
                .arg("-a")
                .arg(tree.join("a"))
                .arg(tree.join("b")),
        );
    }),
    (What::Target, |tree| {
        fs::remove_file(tree.join("link")).unwrap();
        symlink("b", tree.join("link")).unwrap();
    }),
    (What::Device, |tree| {
        fs::remove_file(tree.join("null")).unwrap();
        device(&tree.join("null"), 5);
    }),
    (What::Holes, |tree| {
        let zeros = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file(tree, "zeros"), zeros, 4096, 4096).unwrap();
    }),
];

#[test]
fn every_single_difference_is_seen() {
    within(|bed| {
        let Some(tree) = bed.mount(Format::Ext4, "differences") else {
            return;
        };
        fs::create_dir(tree.join("folder")).unwrap();
        fs::write(tree.join("a"), vec![b'a'; 10_000]).unwrap();
        fs::write(tree.join("zeros"), vec![0; 12_288]).unwrap();
        fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
        symlink("a", tree.join("link")).unwrap();
        mknodat(CWD, tree.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        device(&tree.join("null"), 3);
        for (index, (expected, change)) in CHANGES.iter().enumerate() {
            let copy = tree.with_file_name(format!("copy{index}"));
            let never = "--sparse=never";
            succeed(Command::new("cp").args(["-a", never]).arg(&tree).arg(&copy));
            rustix::fs::syncfs(File::open(&tree).unwrap()).unwrap();
            assert_eq!(differences(&tree, &copy), [], "before {expected:?}");
            change(&copy);
            let found = differences(&tree, &copy);
            assert!(
                found.iter().any(|found| found.what == *expected),
                "{expected:?}: {found:?}"
            );
        }
    });
}

fn file(tree: &Path, name: &str) -> File {
    File::options().write(true).open(tree.join(name)).unwrap()
}

fn device(path: &Path, minor: u32) {
    let number = rustix::fs::makedev(1, minor);
    mknodat(CWD, path, FileType::CharacterDevice, Mode::RUSR, number).unwrap();
}
