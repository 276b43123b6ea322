//! An engine of a test's own: its files in a folder, its networks in a namespace, its control groups by name.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sys::require::{Class, skip};
use testbed::Child;

/// Names the test's folder, in the process that has the engine.
pub(crate) const FOLDER: &str = "LOWROAD_TEST_ENGINE";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` in a process of its own, which is told of an engine that was started for it: this same test again.
pub(crate) fn with_docker(test: &str, body: impl FnOnce()) {
    if std::env::var_os(FOLDER).is_some() {
        return body();
    }
    if !sys::require::root() {
        return;
    }
    for (program, package) in [("dockerd", "docker.io"), ("docker", "docker.io")] {
        let there = Command::new(program).arg("--version").output();
        if there.is_err() {
            return skip(Class::OptIn, &format!("apt-get install {package}"));
        }
    }
    let daemon = Daemon::start();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(FOLDER, daemon.folder.path())
        .env("DOCKER_HOST", daemon.host())
        .status();
    assert!(
        status.unwrap().success(),
        "{test}; the daemon said: {}",
        daemon.said()
    );
}

struct Daemon {
    process: Child,
    folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("daemon.json"), "{}").unwrap();
        let mut command = Command::new("unshare");
        // Its bridge and its rules are in a network namespace that ends with it.
        command.args([
            "--net",
            "--mount",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
        ]);
        command.args(["dockerd", "--storage-driver", "vfs", "--host"]);
        command.arg(format!("unix://{}", at("socket")));
        for (option, name) in [
            ("--config-file", "daemon.json"),
            ("--data-root", "data"),
            ("--exec-root", "exec"),
            ("--pidfile", "pid"),
        ] {
            command.args([option, &at(name)]);
        }
        command.args(["--cgroup-parent", &cgroup()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(at("said")).unwrap());
        let process = Child::start(command).unwrap();
        let mut daemon = Self { process, folder };
        daemon.wait();
        daemon
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        while !self.answers() {
            let ended = self.process.try_wait().unwrap().is_some();
            assert!(!ended && begun.elapsed() < PATIENCE, "{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let mut asked = Command::new("docker");
        asked.arg("version").env("DOCKER_HOST", self.host());
        asked.output().unwrap().status.success()
    }

    fn host(&self) -> String {
        format!("unix://{}/socket", self.folder.path().display())
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let stopped = self.process.stop(PATIENCE);
        // It leaves the group that those of its containers were in.
        let root = Path::new("/sys/fs/cgroup");
        for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(hierarchy.path().join(cgroup()));
        }
        let _ = fs::remove_dir(root.join(cgroup()));
        if !std::thread::panicking() {
            assert!(stopped.unwrap().success(), "{}", self.said());
        }
    }
}

fn cgroup() -> String {
    format!("lr-test-{}", std::process::id())
}
