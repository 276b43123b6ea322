//! A tree on an overlay: files of the lower directory are copied up while it is followed, and the
//! records describe the merged tree, whatever the overlay consists of.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use replicate::capture::{Capture, Error, Options};
use rustix::fs::{XattrFlags, removexattr, setxattr};
use sys::file_mapping::FileMapping;

use crate::bed::file_system::{Bed, Format, within};
use crate::bed::workload::Workload;
use crate::follow::{Ends, Following, shell};

/// Mount options that change what happens to a file that is copied up, or its inode number.
const OPTIONS: &[&str] = &[
    "",
    ",metacopy=on,redirect_dir=on",
    ",index=on,redirect_dir=nofollow",
    ",nfs_export=on,index=on",
    ",xino=on",
];

fn looking() -> Options {
    Options {
        look: true,
        ..Options::default()
    }
}

/// What all copying up is tried on.
fn fill(lower: &Path) {
    shell(
        lower,
        "for name in written truncated owned dated mapped early moved replaced removed direct allocated
         do head -c 20000 /dev/urandom >$name; done
         echo linked >a; ln a b; ln a c; echo opened >d; ln d e; echo x >f; ln f g
         mkdir -p deep/er/est renamed/below merged opaque gone/below
         echo deep >deep/er/est/file; echo below >renamed/below/file; echo merged >merged/file
         echo opaque >opaque/file; echo gone >gone/below/file; ln a deep/er/again
         ln -s nowhere link; mkfifo pipe; mknod null c 1 3; truncate -s 1M hole",
    );
    setxattr(
        lower.join("written"),
        "user.below",
        b"yes",
        XattrFlags::empty(),
    )
    .unwrap();
}

fn mapping(tree: &Path, name: &str) -> FileMapping {
    let file = File::options().read(true).write(true).open(tree.join(name));
    FileMapping::new(OwnedFd::from(file.unwrap()), 20_000, 0).unwrap()
}

#[test]
fn what_an_overlay_links_where_it_counts_names_is_said() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        shell(
            &tree,
            "mkdir lower upper work ../merged; echo x >lower/a; ln lower/a lower/b; echo y >lower/c; ln lower/c lower/d
             mount -t overlay -o index=on,lowerdir=lower,upperdir=upper,workdir=work none ../merged",
        );
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        shell(&tree, "chmod 600 ../merged/a");
        following.check(&tree);
        shell(
            &tree,
            "touch -d 2001-02-03 ../merged/c; chown 1:1 ../merged/d",
        );
        following.check(&tree);
        shell(&tree, "umount ../merged");
    });
}

#[test]
fn what_is_copied_up_is_said() {
    within(|bed| {
        for (index, options) in OPTIONS.iter().enumerate() {
            println!("options {options:?}");
            if let Some(tree) = bed.layers(Format::Ext4, &format!("o{index}"), options, fill) {
                copy_up(&tree, Options::default());
            }
        }
    });
}

#[test]
fn what_is_copied_up_to_any_file_system_is_said() {
    within(|bed| {
        for format in [Format::Xfs, Format::Btrfs, Format::Tmpfs] {
            let name = format!("{format:?}");
            if let Some(tree) = bed.layers(format, &name, "", fill) {
                copy_up(&tree, looking());
            }
        }
    });
}

#[test]
fn what_is_never_synced_is_looked_for() {
    within(|bed| {
        for (format, options) in [(Format::Ext4, ",volatile"), (Format::Tmpfs, "")] {
            let name = format!("silent{format:?}");
            let Some(tree) = bed.layers(format, &name, options, fill) else {
                continue;
            };
            let refused = Capture::start(&tree, Options::default());
            assert!(matches!(refused, Err(Error::Silent { .. })), "{refused:?}");
            copy_up(&tree, looking());
        }
    });
}

/// Does all of it, and compares after each step.
fn copy_up(tree: &Path, options: Options) {
    let early = mapping(tree, "early");
    early.store(5000, b"before");
    let mut following = Following::start(tree, options);
    following.check(tree);
    early.store(5000, b"mapped before");
    following.check(tree);
    let map = mapping(tree, "mapped");
    following.check(tree);
    for round in 0..3 {
        map.store(9000 * round, b"stored");
        early.store(7000 * round, b"stored early");
        following.check(tree);
    }
    for script in [
        "printf x | dd of=written bs=1 seek=7000 conv=notrunc status=none",
        "echo more >>written; echo more >>deep/er/est/file",
        "truncate -s 3000 truncated; fallocate -p -o 4096 -l 4096 allocated; fallocate -l 70000 hole",
        "chmod 600 owned; chown 7:8 owned link pipe -h; touch -d 2001-02-03 dated",
        "dd if=/dev/zero of=direct bs=4096 count=1 seek=1 oflag=direct conv=notrunc status=none",
        // A file of its own by being opened, and later by its bytes.
        "exec 7<>b; exec 7>&-",
        "echo bytes >>b",
        "echo other >>a; echo again >>b; echo more >>deep/er/again",
        "exec 7<>d; exec 7>&-; mv e e2; ln d d2",
        "rm f; echo y >>g",
        "mv moved moved2; mv written deep/er; mv -T deep/er/written written",
        "mv renamed renamed2; echo new >>renamed2/below/file; mv renamed2/below/file renamed2/file",
        "rm removed; echo anew >removed; rm replaced; mkdir replaced; echo in >replaced/file",
        "rm -r opaque; mkdir opaque; echo above >opaque/new",
        "rm -r gone; echo more >merged/new; rm merged/file; rmdir merged 2>/dev/null || true",
        "rm merged/new; rmdir merged; rm link; ln -s elsewhere link; rm pipe null",
        "mkdir -p p/q; mv deep p/q 2>/dev/null || cp -a deep p/q; echo z >p/q/deep/er/est/file",
        "echo early >>early; truncate -s 100 mapped",
    ] {
        println!("{script}");
        shell(tree, script);
        following.check(tree);
    }
    setxattr(
        tree.join("dated"),
        "user.above",
        b"yes",
        XattrFlags::empty(),
    )
    .unwrap();
    removexattr(tree.join("written"), "user.below").unwrap();
    following.check(tree);
    early.store(100, b"and last");
    following.check(tree);
    drop(early);
    shell(tree, "rm early; echo early >early");
    following.check(tree);
}

/// While the kernel makes a copy in a directory, that has another time than before and after.
#[test]
fn what_is_copied_up_while_its_directory_is_read_is_said() {
    within(|bed| {
        let tree = bed.layers(Format::Ext4, "copies", "", fill)?;
        let upper = bed.scratch().join("copies.layers/tree/upper/tree/deep");
        shell(&tree, "chmod 700 deep");
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        let before = fs::metadata(&upper).unwrap().modified().unwrap();
        let set = |time| File::open(&upper).unwrap().set_modified(time).unwrap();
        // As the kernel does, for longer than it does.
        set(before + Duration::from_secs(1));
        shell(&tree, "chmod 701 deep");
        following.check(&tree);
        set(before);
        shell(&tree, "exec 7<>deep/er/est/file");
        following.check(&tree);
        Some(())
    });
}

#[test]
fn seeds_above_what_others_have_left_are_said() {
    within(|bed| {
        for seed in 1..=5_u64 {
            let options = OPTIONS[usize::try_from(seed).unwrap() % OPTIONS.len()];
            let fill = |lower: &Path| {
                let mut workload = Workload::start(lower, seed, 150, 150);
                while workload.next().is_some() {}
            };
            if let Some(tree) = bed.layers(Format::Ext4, &format!("s{seed}"), options, fill) {
                seed_above(&tree, 1000 + seed);
            }
        }
    });
}

fn seed_above(tree: &Path, seed: u64) {
    let mut following = Following::start(tree, Options::default());
    let mut workload = Workload::start(tree, seed, 150, 25);
    while let Some(steps) = following.during(|| workload.next()) {
        println!("seed {seed}: {steps:#?}");
        following.check(tree);
    }
}

#[test]
fn what_finds_no_room_is_read() {
    within(|bed| {
        let tree = bed.layers(Format::Ext4, "small", "", fill)?;
        let small = Options {
            ring_bytes: 64 << 10,
            ..Options::default()
        };
        let map = mapping(&tree, "mapped");
        let mut following = Following::start(&tree, small);
        following.check(&tree);
        // Not polled meanwhile.
        shell(
            &tree,
            "for i in $(seq 200); do echo $i >f$i; mv f$i g$i; done; rm g1*; mkdir -p one/two
             for i in $(seq 50); do echo $i >one/two/$i; done; mv one/two three; rmdir one
             echo more >>written; echo more >>a; echo b >>b; rm moved; chmod 600 owned; rm -r opaque",
        );
        map.store(300, b"stored, and nobody was told");
        let progress = following.check(&tree);
        assert!(progress.dropped > 100, "{progress:?}");
        map.store(300, b"again");
        shell(&tree, "echo more >>a; echo more >>b; echo more >>c");
        following.check(&tree);
        Some(())
    });
}

#[test]
fn files_that_are_numbered_by_themselves_are_refused() {
    within(|bed| {
        let lower = bed.mount(Format::Tmpfs, "lower")?;
        let make = |bed: &Bed, name: &str, options: &str| {
            let layers = bed.mount(Format::Ext4, &format!("{name}.layers"))?;
            bed.above(&lower.join(name), &layers, name, options, fill)
        };
        let apart = make(bed, "apart", ",xino=off")?;
        let mut capture = Capture::start(&apart, Options::default()).unwrap();
        let refused = loop {
            match capture.poll(&mut drop) {
                Ok(progress) => assert_eq!(progress.epoch, 0),
                Err(error) => break error.to_string(),
            }
        };
        assert!(refused.contains("xino=on"), "{refused}");
        copy_up(&make(bed, "together", ",xino=on")?, Options::default());
        Some(())
    });
}

#[test]
fn an_overlay_that_has_no_upper_directory_is_refused() {
    within(|bed| {
        let tree = bed.mount(Format::Ext4, "lowers")?;
        shell(
            &tree,
            "mkdir one two at; mount -t overlay overlay -o lowerdir=one:two at",
        );
        let refused = Capture::start(&tree.join("at"), Options::default()).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("no upper directory"), "{said}");
        Some(())
    });
}

/// The directory that an overlay writes to is a tree itself: a container's, looked at from outside.
#[test]
fn what_programs_store_through_an_overlay_is_in_its_upper_directory() {
    within(|bed| {
        for format in [Format::Ext4, Format::Xfs] {
            let Some(layers) = bed.follow(format, &format!("{format:?}")) else {
                continue;
            };
            shell(
                &layers,
                "mkdir lower upper work merged
                 mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none merged
                 mkdir merged/data",
            );
            let [upper, merged] = ["upper/data", "merged/data"].map(|name| layers.join(name));
            let mut following = Following::start(&upper, Options::default());
            shell(&merged, "head -c 8192 /dev/zero >file");
            following.check(&upper);
            shell(
                &merged,
                "head -c 8192 /dev/zero | tr '\\0' x | dd of=file conv=notrunc status=none",
            );
            following.check(&upper);
            let file = File::options()
                .read(true)
                .write(true)
                .open(merged.join("file"));
            let mapping = FileMapping::new(OwnedFd::from(file.unwrap()), 8192, 0).unwrap();
            for at in [100, 5000, 100, 101] {
                mapping.store(at, b"stored");
                following.check(&upper);
            }
        }
    });
}

/// All whiteouts that an overlay creates are names of one file, of which only the newest is
/// reported.
#[test]
fn what_several_take_away_of_an_overlay_at_once_is_said() {
    const FILES: usize = 1500;
    within(|bed| {
        let Some(layers) = bed.follow(Format::Ext4, "taken") else {
            return;
        };
        shell(
            &layers,
            "mkdir lower upper work merged
             for i in $(seq 0 1499); do mkdir lower/d$i; echo $i >lower/d$i/file; done
             mount -t overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work none merged
             chmod 700 merged/d*",
        );
        let [upper, merged] = ["upper", "merged"].map(|name| layers.join(name));
        let mut following = Following::start(&upper, Options::default());
        following.check(&upper);
        following.during(|| {
            thread::scope(|scope| {
                for first in 0..2 {
                    let merged = &merged;
                    scope.spawn(move || {
                        for number in (first..FILES).step_by(2) {
                            fs::remove_file(merged.join(format!("d{number}/file"))).unwrap();
                        }
                    });
                }
            });
        });
        following.check(&upper);
    });
}

/// If another thread changes the program's mappings, the kernel does not report what is at an
/// address.
#[test]
fn what_a_program_with_threads_stores_through_an_overlay_is_said() {
    within(|bed| {
        let Some(layers) = bed.follow(Format::Ext4, "threads") else {
            return;
        };
        shell(
            &layers,
            "mkdir lower upper work merged
             mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none merged
             mkdir merged/data",
        );
        let [upper, merged] = ["upper/data", "merged/data"].map(|name| layers.join(name));
        let mut following = Following::start(&upper, Options::default());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    // More than the allocator keeps of freed memory.
                    while !done.load(Ordering::Relaxed) {
                        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
                    }
                });
            }
            let _ends_the_threads = Ends(&done);
            for number in 0..20 {
                let path = merged.join(format!("file{number}"));
                fs::write(&path, [b'w'; 4096]).unwrap();
                let file = File::options().read(true).write(true).open(&path);
                let mapping = FileMapping::new(OwnedFd::from(file.unwrap()), 4096, 0).unwrap();
                // By now the page has been read, and is still dirty.
                following.check(&upper);
                mapping.store(100, b"stored");
                following.check(&upper);
            }
        });
    });
}
