//! A Docker engine for one test, with its own folder, network namespace and control group.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use sys::child::die_with_parent;
use sys::require::{Class, skip};

/// Names the test's folder, in the process that has the engine.
pub const FOLDER: &str = "LOWROAD_TEST_ENGINE";
/// The file in that folder which says that `body` has returned.
const COMPLETION_FILE: &str = "completed";
/// How long the engine may take to start or to stop.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two checks of the engine.
const TICK: Duration = Duration::from_millis(20);

/// Starts an engine and runs `test` again in a child process that finds it in `DOCKER_HOST`; there, `body` runs.
pub fn with_docker(test: &str, body: impl FnOnce()) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        body();
        fs::write(Path::new(&folder).join(COMPLETION_FILE), "")
            .expect("the engine's folder is writable");
        return;
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
        daemon.read_log()
    );
    // A test program that has no test of this name ends without an error.
    assert!(
        daemon.folder.path().join(COMPLETION_FILE).exists(),
        "{test} is not the path of a test"
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
        // Its bridge and its rules are in a network namespace that ends with the engine.
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
        command.stderr(fs::File::create(at("log")).unwrap());
        let process = die_with_parent(&mut command).spawn().unwrap();
        let mut daemon = Self { process, folder };
        daemon.wait();
        daemon
    }

    fn wait(&mut self) {
        let started = Instant::now();
        while !self.answers() {
            let ended = self.process.try_wait().unwrap().is_some();
            assert!(!ended && started.elapsed() < TIMEOUT, "{}", self.read_log());
            std::thread::sleep(TICK);
        }
    }

    fn answers(&self) -> bool {
        let mut asked = Command::new("docker");
        asked.arg("version").env("DOCKER_HOST", self.host());
        asked.output().unwrap().status.success()
    }

    /// Sends SIGTERM to the process group, and SIGKILL after the timeout.
    fn stop(&mut self) -> io::Result<ExitStatus> {
        // Once the group's leader is reaped, another group may get its number.
        if let Some(status) = self.process.try_wait()? {
            return Ok(status);
        }
        let group = Pid::from_raw(self.process.id().cast_signed());
        let until = Instant::now() + TIMEOUT;
        killpg(group, Signal::SIGTERM)?;
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(TICK);
        }
        killpg(group, Signal::SIGKILL)?;
        self.process.wait()
    }

    fn host(&self) -> String {
        format!("unix://{}/socket", self.folder.path().display())
    }

    fn read_log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let stopped = self.stop();
        // The engine does not remove the parent of its containers' control groups.
        let root = Path::new("/sys/fs/cgroup");
        for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(hierarchy.path().join(cgroup()));
        }
        let _ = fs::remove_dir(root.join(cgroup()));
        if !std::thread::panicking() {
            assert!(stopped.unwrap().success(), "{}", self.read_log());
        }
    }
}

fn cgroup() -> String {
    format!("lr-test-{}", std::process::id())
}
