//! The units of `packaging/`: how much they expose, and whether the services work under a systemd that applies them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sys::require::{self, Class};

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/service_units");
/// What `systemd-analyze security` may say of a unit, times ten: 100 is a service without any restriction.
const MAX_EXPOSURE: u32 = 25;
/// Units that others depend on, without what they start on a machine.
const TARGETS: [&str; 6] = [
    "basic",
    "local-fs",
    "multi-user",
    "network-online",
    "shutdown",
    "sysinit",
];
const BOOT_TIME: Duration = Duration::from_secs(60);

/// The units, a template with an interface.
pub(crate) fn units() -> Vec<(String, PathBuf)> {
    let files = fs::read_dir(PACKAGING).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let units = names.filter(|name| name.ends_with(".service"));
    let mut units: Vec<_> = units
        .map(|name| (name.replace('@', "@eth0"), Path::new(PACKAGING).join(name)))
        .collect();
    units.sort();
    assert_eq!(units.len(), 6);
    units
}

/// Whether systemd is installed; reports the skip if it is not.
pub(crate) fn has_systemd() -> bool {
    let present = Path::new("/lib/systemd/systemd").exists();
    if !present {
        require::skip(Class::OptIn, "no systemd: apt install systemd");
    }
    present
}

#[test]
fn each_unit_exposes_little() {
    if !has_systemd() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, unit) in units() {
        let copy = folder.path().join(&name);
        fs::copy(unit, &copy).unwrap();
        let analysis = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(format!("--threshold={MAX_EXPOSURE}"))
            .arg(&copy)
            .output()
            .unwrap();
        let table = String::from_utf8_lossy(&analysis.stdout);
        assert!(table.contains("Overall exposure level"), "{name}: {table}");
        assert!(analysis.status.success(), "{name}: {table}");
    }
}

/// Ends with all that it runs when it is dropped.
struct Machine {
    unshare: Child,
    cgroup: PathBuf,
    folder: tempfile::TempDir,
}

impl Machine {
    /// Boots systemd in namespaces of its own with the units, whose services start at once.
    fn boot() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        for name in ["layers", "root"] {
            fs::create_dir(state.join(name)).unwrap();
        }
        let files = state.join("files");
        let copied = Command::new("cp")
            .args(["-R", &format!("{HERE}/files")])
            .arg(&files)
            .status();
        assert!(copied.unwrap().success());
        let folder_of_units = files.join("etc/lowroad-units");
        for (_, unit) in units() {
            fs::copy(&unit, folder_of_units.join(unit.file_name().unwrap())).unwrap();
        }
        for name in TARGETS {
            let text = "[Unit]\nDefaultDependencies=no\n";
            fs::write(folder_of_units.join(format!("{name}.target")), text).unwrap();
        }
        let users = files.join("usr/lib/sysusers.d");
        fs::create_dir_all(&users).unwrap();
        let packaged = Path::new(PACKAGING).join("lowroad.sysusers");
        fs::copy(packaged, users.join("lowroad.conf")).unwrap();
        let cgroup = cgroups().join(format!("lowroad-units-{}", std::process::id()));
        fs::create_dir(&cgroup).unwrap();
        // The shell is in the cgroup before `unshare` makes it the root of the machine's own.
        let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", cgroup.display());
        let log = fs::File::create(state.join("log")).unwrap();
        let unshare = Command::new("sh")
            .args([
                "-c", &enter, "sh", "unshare", "--mount", "--pid", "--cgroup", "--net", "--uts",
                "--ipc",
            ])
            .args(["--fork", "--propagation=private", "--kill-child=KILL", "sh"])
            .arg(format!("{HERE}/boot.sh"))
            .arg(state)
            .arg(env!("CARGO_BIN_EXE_lowroad"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            unshare,
            cgroup,
            folder,
        }
    }

    /// The process id of systemd, once it has taken its place.
    fn manager(&mut self) -> String {
        let children = format!("/proc/{0}/task/{0}/children", self.unshare.id());
        let started = Instant::now();
        loop {
            let child = fs::read_to_string(&children).unwrap_or_default();
            let child = child.trim();
            let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            let socket = format!("/proc/{child}/root/run/systemd/private");
            if name.trim() == "systemd" && Path::new(&socket).exists() {
                return child.to_owned();
            }
            let ended = self.unshare.try_wait().unwrap();
            assert!(
                ended.is_none() && started.elapsed() < BOOT_TIME,
                "{}",
                fs::read_to_string(self.folder.path().join("log")).unwrap()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a script of this folder inside; returns whether it succeeded, and its output.
    fn run(&mut self, script: &str) -> (bool, String) {
        let text = fs::File::open(format!("{HERE}/{script}")).unwrap();
        let output = Command::new("nsenter")
            .args([
                "--target",
                &self.manager(),
                "--mount",
                "--pid",
                "--net",
                "--cgroup",
            ])
            .args(["--uts", "--ipc", "--root", "--wd", "sh", "-s"])
            .stdin(text)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ended = self.unshare.kill().and_then(|()| self.unshare.wait());
        // The kernel removes the processes of the namespace one after the other.
        let started = Instant::now();
        while remove_cgroup(&self.cgroup).is_err() && started.elapsed() < BOOT_TIME {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn remove_cgroup(cgroup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroup(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}

/// Where the hierarchy of cgroups is mounted.
fn cgroups() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let point = mount.and_then(|line| line.split(' ').nth(4));
    PathBuf::from(point.expect("cgroup2 is mounted"))
}

#[test]
fn services_work_under_their_units() {
    if !require::root() || !has_systemd() {
        return;
    }
    let mut machine = Machine::boot();
    let (succeeded, said) = machine.run("check.sh");
    assert!(succeeded && said.contains("all services work"), "{said}");
}
