//! A tree that is being followed, and a comparison of its records with it.

mod mirror;
pub(crate) mod naive;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use replicate::capture::{Capture, INTERVAL, Options, Progress};
use replicate::record::Entry;

pub(crate) use mirror::Mirror;
pub(crate) use naive::Naive;

/// Longer than a test takes on a shared machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a program that must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A shell script in a directory.
pub(crate) fn shell(directory: &Path, script: &str) -> String {
    run(Command::new("bash")
        .args(["-euc", script])
        .current_dir(directory))
}

/// Tells a thread to end, also where the test has failed.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A capture, and what its records make of the tree.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) capture: Capture,
    pub(crate) mirror: Mirror,
    pub(crate) entries: Vec<Entry>,
}

impl Following {
    pub(crate) fn start(tree: &Path, options: Options) -> Self {
        let patterns = Naive::of(&options.patterns);
        Self {
            capture: Capture::start(tree, options).unwrap(),
            mirror: Mirror::of(patterns),
            entries: Vec::new(),
        }
    }

    /// Follows until an epoch has everything that has happened, and discards the earlier entries.
    pub(crate) fn catch_up(&mut self) -> Progress {
        self.entries.clear();
        let Self {
            capture,
            mirror,
            entries,
        } = self;
        let all = capture
            .catch_up(LIMIT, &mut |entry| {
                mirror.fold(&entry);
                entries.push(entry);
            })
            .unwrap();
        let progress = capture.progress();
        assert!(all, "no epoch: {progress:?}");
        progress
    }

    pub(crate) fn poll(&mut self) -> Progress {
        let Self {
            capture,
            mirror,
            entries,
        } = self;
        capture
            .poll(&mut |entry| {
                mirror.fold(&entry);
                entries.push(entry);
            })
            .unwrap()
    }

    /// Follows while `work` is done.
    pub(crate) fn during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    self.poll();
                    thread::sleep(INTERVAL);
                }
            });
            let _ends_the_capture = Ends(&done);
            work()
        })
    }

    /// Catches up, and compares.
    pub(crate) fn check(&mut self, tree: &Path) -> Progress {
        let progress = self.catch_up();
        self.mirror.compare(tree);
        progress
    }
}
