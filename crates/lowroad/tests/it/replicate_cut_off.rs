//! The real binary ends in the middle of a step when it is told to, and the next run takes the replica up.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use replicate::log::{Options, Writer};
use replicate::record::{Attributes, Change, Entry, File, Kind, Name, Origin};

use crate::replicate_command::{LOWROAD, lowroad};

/// More than are made between a signal and the end of a run.
const FILES: u64 = 60_000;

fn log(folder: &Path) {
    let mut writer = Writer::open(&folder.join("log"), Options::default()).unwrap();
    let file = |inode| File {
        inode,
        generation: 0,
    };
    let root = file(2);
    let mut say = |entry| {
        writer.append(1, entry).unwrap();
    };
    say(Entry::Start { root });
    say(attributes(root, 0o755));
    for number in 0..FILES {
        let file = file(10 + number);
        let kind = Kind::Regular;
        say(Entry::Change(Change::New { file, kind }));
        say(Entry::Change(Change::Data {
            file,
            offset: 0,
            bytes: b"some bytes".to_vec(),
            origin: Origin::Exact,
        }));
        say(attributes(file, 0o644));
        say(Entry::Change(Change::Link {
            directory: root,
            name: Name::new(number.to_string().as_bytes()).unwrap(),
            file,
        }));
    }
    say(Entry::Epoch { number: 1 });
    writer.sync().unwrap();
}

fn attributes(file: File, mode: u16) -> Entry {
    Entry::Change(Change::Attributes {
        file,
        attributes: Attributes {
            mode,
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
            modified_ns: 1,
        },
    })
}

/// Files that are made, in the tree or beside it.
fn count_files(folder: &Path) -> usize {
    let count = |tree: &str| fs::read_dir(folder.join(tree)).map_or(0, Iterator::count);
    count("replica/tree") + count("replica/staging/tree")
}

/// Waits until some files are there, and sends a signal. What the program says, and its exit code.
fn interrupt(mut program: Child, signal: Signal, folder: &Path) -> (String, Option<i32>) {
    while count_files(folder) < 200 {
        assert!(program.try_wait().unwrap().is_none(), "it has ended");
        thread::sleep(Duration::from_millis(1));
    }
    let pid = Pid::from_raw(i32::try_from(program.id()).unwrap());
    kill(pid, signal).unwrap();
    let output = program.wait_with_output().unwrap();
    (
        String::from_utf8(output.stderr).unwrap(),
        output.status.code(),
    )
}

#[test]
fn a_signal_ends_apply_in_the_middle_of_a_step() {
    for (signal, follow) in [(Signal::SIGTERM, false), (Signal::SIGINT, true)] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let folder = folder.path();
        log(folder);
        let program = Command::new(LOWROAD)
            .args(["replicate", "apply", "log", "--to", "replica"])
            .args(follow.then_some("--follow"))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (said, code) = interrupt(program, signal, folder);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("replica: ended in the middle of a step; the next"),
            "{said}"
        );
        assert!((count_files(folder) as u64) < FILES, "all was made");
        let output = lowroad(&["replicate", "apply", "log", "--to", "replica"], folder);
        assert!(output.status.success(), "{output:?}");
        let output = lowroad(
            &["replicate", "verify", "log", "--against", "replica/tree"],
            folder,
        );
        assert!(output.status.success(), "{output:?}");
        assert_eq!(count_files(folder) as u64, FILES);
    }
}
