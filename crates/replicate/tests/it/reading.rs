//! Which parts of a file are read, and how many times.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use replicate::capture::Options;
use sys::file_mapping::FileMapping;

use crate::bed::file_system::{Format, within};
use crate::follow::{Ends, Following, shell};

const PAGE: usize = 4096;

fn mapping(path: &Path, length: usize) -> FileMapping {
    let file = File::options().read(true).write(true).open(path);
    FileMapping::new(OwnedFd::from(file.unwrap()), length, 0).unwrap()
}

fn looking() -> Options {
    Options {
        look: true,
        ..Options::default()
    }
}

#[test]
fn of_a_file_that_is_stored_to_without_pause_the_rest_is_read_once() {
    const PAGES: usize = 4096;
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs] {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            println!("{format:?}");
            shell(&tree, "truncate -s 16M file");
            let mut following = Following::start(&tree, Options::default());
            let before = following.check(&tree).read_back;
            let map = mapping(&tree.join("file"), PAGES * PAGE);
            for page in 0..PAGES {
                map.store(page * PAGE, b"first");
            }
            let ended = AtomicBool::new(false);
            let progress = thread::scope(|scope| {
                let _ends = Ends(&ended);
                scope.spawn(|| {
                    for count in 0u64.. {
                        map.store(PAGE, &count.to_ne_bytes());
                        if ended.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
                // An event whose number is taken but that has not arrived holds up all reading.
                let deadline = Instant::now() + Duration::from_secs(60);
                let all = before + (PAGES * PAGE) as u64;
                while following.poll().read_back < all && Instant::now() < deadline {}
                for _ in 0..30 {
                    following.poll();
                }
                following.poll()
            });
            let read = usize::try_from(progress.read_back - before).unwrap();
            assert!((PAGES * PAGE..3 * PAGES * PAGE).contains(&read), "{read}");
            following.check(&tree);
        });
    }
}

#[test]
fn holes_of_what_is_looked_at_are_not_read() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Tmpfs, "tree") else {
            return;
        };
        shell(&tree, "truncate -s 900G file");
        let map = mapping(&tree.join("file"), 64 * PAGE);
        map.store(0, b"first");
        let mut following = Following::start(&tree, looking());
        following.check(&tree);
        map.store(40 * PAGE, b"second");
        following.check(&tree);
        shell(
            &tree,
            "fallocate --punch-hole --offset 0 --length 8192 file",
        );
        let progress = following.check(&tree);
        assert!(progress.read_back < 1 << 20, "{progress:?}");
    });
}

#[test]
fn what_is_stored_again_is_said_though_it_was_looked_at_before() {
    for format in [Format::Tmpfs, Format::Overlay] {
        within(|bed| {
            let tree = match format {
                Format::Overlay => bed.layers(Format::Tmpfs, "tree", "", |lower| {
                    shell(lower, "echo before >file");
                }),
                _ => bed.follow(format, "tree"),
            };
            let Some(tree) = tree else {
                return;
            };
            println!("{format:?}");
            shell(&tree, "head -c 8192 /dev/zero >file");
            let map = mapping(&tree.join("file"), 2 * PAGE);
            let file = File::options().write(true).open(tree.join("file")).unwrap();
            let mut following = Following::start(&tree, looking());
            for _ in 0..3 {
                map.store(100, b"one");
                following.check(&tree);
                file.write_all_at(b"two", 100).unwrap();
                map.store(100, b"one");
                following.check(&tree);
            }
        });
    }
}

/// Has a lease of a file that it gives up a while after it is asked for it, and writes before.
const LEASE: &str = r#"
import fcntl, os, signal, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("ready", flush=True)
signal.sigwait([signal.SIGIO])
time.sleep(0.3)
os.pwrite(fd, b"kept until now", 0)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
"#;

#[test]
fn who_has_a_lease_of_a_file_is_waited_for() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        shell(&tree, "echo some file >file");
        let mut command = Command::new("python3");
        command.args(["-c", LEASE]).arg(tree.join("file"));
        let command = sys::child::die_with_parent(&mut command).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(holder.stdout.take().unwrap());
        lines.read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let mut following = Following::start(&tree, Options::default());
        following.catch_up();
        assert!(holder.wait().unwrap().success());
        following.check(&tree);
    });
}
