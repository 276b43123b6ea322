//! A tree that is followed while a program works in it, and its replicas.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use replicate::apply::{self, Replica};
use replicate::restore::{self, restore};

use crate::bed::file_system::{Bed, Format};
use crate::bed::recording::Recording;
use crate::bed::trees::{What, differences};

/// Far beyond what any wait here takes.
const TIMEOUT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);

/// A tree, its log, and a replica that follows it.
pub(crate) struct MirrorBed {
    pub(crate) tree: PathBuf,
    recording: Option<Recording>,
    replica: Option<Replica>,
    copies: PathBuf,
}

impl MirrorBed {
    /// On two file systems; `None`, with the skip reported, where there are none.
    pub(crate) fn start(bed: &Bed, name: &str) -> Option<Self> {
        Self::start_on(bed, Format::Ext4, name)
    }

    /// As [`Self::start`], with the tree on such a file system.
    pub(crate) fn start_on(bed: &Bed, format: Format, name: &str) -> Option<Self> {
        let tree = bed.follow(format, name)?;
        let copies = bed.mount(Format::Ext4, &format!("{name}.copies"))?;
        let recording = Recording::start(&tree, &copies.join("log"));
        let options = apply::Options {
            privileged: true,
            ..apply::Options::default()
        };
        let replica = Replica::open(&copies.join("log"), &copies.join("replica"), options);
        Some(Self {
            tree,
            recording: Some(recording),
            replica: Some(replica.unwrap()),
            copies,
        })
    }

    pub(crate) fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        self.recording.as_mut().unwrap().during(work)
    }

    /// Captures, and keeps the replica up to date, until the condition holds.
    pub(crate) fn until(&mut self, what: &str, so: impl Fn() -> bool + Sync) {
        let Self {
            recording, replica, ..
        } = self;
        let (recording, replica) = (recording.as_mut().unwrap(), replica.as_mut().unwrap());
        recording.during(|| {
            until(what, || {
                replica.apply(None).unwrap();
                so()
            });
        });
    }

    /// An epoch that has all that has happened.
    pub(crate) fn epoch(&mut self) -> u64 {
        let recording = self.recording.as_mut().unwrap();
        recording.catch_up();
        recording.epoch()
    }

    /// The last epoch, and the tree as the replica has it then, and as it is restored: both are the tree
    /// that is there.
    pub(crate) fn end(&mut self) -> (u64, [PathBuf; 2]) {
        let mut recording = self.recording.take().unwrap();
        recording.catch_up();
        let mut replica = self.replica.take().unwrap();
        replica.apply(None).unwrap();
        assert_eq!(replica.reached().0, recording.epoch());
        replica.end().unwrap();
        let restored = self.copies.join("restored");
        restore(&self.copies.join("log"), None, &restored, AS_ROOT).unwrap();
        let all = [self.copies.join("replica/tree"), restored];
        for copy in &all {
            let mut differ = differences(&self.tree, copy);
            // Where blocks lie is the file system's to choose.
            differ.retain(|one| one.what != What::Holes);
            assert!(differ.is_empty(), "{}: {differ:#?}", copy.display());
        }
        (recording.epoch(), all)
    }

    /// The tree as of an epoch.
    pub(crate) fn restored(&self, epoch: u64) -> PathBuf {
        let to = self.copies.join(format!("epoch {epoch}"));
        restore(&self.copies.join("log"), Some(epoch), &to, AS_ROOT).unwrap();
        to
    }
}

const AS_ROOT: restore::Options = restore::Options { privileged: true };

/// # Panics
/// When it never is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < TIMEOUT, "{what} never");
        thread::sleep(TICK);
    }
}

/// Kills a program and all of its children. Like a power failure, this leaves no time for a clean
/// end.
pub(crate) fn kill_all(program: &mut Child) {
    let id = Pid::from_raw(i32::try_from(program.id()).unwrap());
    kill(id, Signal::SIGSTOP).unwrap();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    for child in children.split_whitespace() {
        // A process that had ended may have been reaped meanwhile.
        let ended = kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL);
        assert!(matches!(ended, Ok(()) | Err(Errno::ESRCH)), "{ended:?}");
    }
    program.kill().unwrap();
    program.wait().unwrap();
}

/// The output of a program that must succeed.
pub(crate) fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Bash with a script, in a folder that is not the tree, which is `$1`.
pub(crate) fn script(bed: &Bed, words: &str, tree: &Path) -> String {
    let mut command = Command::new("bash");
    command.args(["-euc", words, "bash"]).arg(tree);
    output_of(command.current_dir(scratch(bed)))
}

/// A world-writable folder for a server's socket and its output.
pub(crate) fn scratch(bed: &Bed) -> PathBuf {
    let folder = tempfile::tempdir_in(bed.scratch()).unwrap().keep();
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    folder
}
