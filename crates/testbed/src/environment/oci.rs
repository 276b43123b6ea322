//! A container of runc, without a daemon or an image: its root holds what a program needs, and its
//! network is a namespace of ours, so that links are those of native hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, fs};

use datapath::Missing;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Environment, EnvironmentSpec, Kind};
use crate::error::Error;
use crate::names;
use crate::network::{Network, root};
use crate::process::child::Child;
use crate::process::libraries::libraries;
use crate::process::program::Program;
use crate::process::sd_notify::{NOTIFY_SOCKET, NotifySocket};

pub(crate) const KIND: Kind = Kind {
    name: "oci",
    guest: false,
    probe,
    look: probe,
    up: |spec| Ok(Box::new(Oci::up(spec)?)),
};

/// How long runc may take to start a container.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_micros(200);
/// Docker's default capabilities for networks.
const CAPABILITIES: &[&str] = &["CAP_NET_BIND_SERVICE", "CAP_NET_RAW"];

fn probe() -> Result<(), Missing> {
    root()?;
    runtime()
}

/// Whether runc is installed.
pub(crate) fn runtime() -> Result<(), Missing> {
    match in_path(OsStr::new("runc")) {
        Some(_) => Ok(()),
        None => Err(Missing::new(
            "runc is not installed",
            "apt-get install runc",
        )),
    }
}

/// A network that containers share, one for each program.
#[derive(Debug)]
struct Oci {
    // The order of the fields is the order of the teardown: nothing runs in the folder any more when
    // it goes.
    network: Network,
    folder: TempDir,
    name: String,
    cpus: Vec<usize>,
    started: AtomicU32,
    /// The time from the request for the last container until its program ran.
    up_us: AtomicU64,
}

impl Oci {
    fn up(spec: EnvironmentSpec<'_>) -> Result<Self, Error> {
        probe()?;
        let folder = names::folder().map_err(|cause| Error::Spawn {
            host: spec.name.to_owned(),
            program: "runc".to_owned(),
            cause,
        })?;
        Ok(Self {
            network: Network::create(spec.name, spec.cpus)?,
            folder,
            name: spec.name.to_owned(),
            cpus: spec.cpus.to_vec(),
            started: AtomicU32::new(0),
            up_us: AtomicU64::new(0),
        })
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Writes the folder that runc makes a container of.
    fn bundle(&self, id: &str, program: &Program, ready: Option<&Path>) -> io::Result<PathBuf> {
        let bundle = self.folder.path().join(id);
        fs::create_dir_all(bundle.join("rootfs"))?;
        let mut contents = Bundle::new(program)?;
        if let Some(ready) = ready {
            contents.set_notify_socket(ready);
        }
        let network = Path::new("/run/netns").join(&self.name);
        let config = contents.config(id, Some(&network), &self.cpus, program);
        fs::write(bundle.join("config.json"), config.to_string())?;
        Ok(bundle)
    }
}

impl Environment for Oci {
    fn network(&self) -> &Network {
        &self.network
    }

    fn start(&self, program: Program) -> io::Result<Child> {
        let id = format!("{}-{}", self.name, self.started.fetch_add(1, Relaxed));
        let ready = NotifySocket::bind(program.notifies_ready())?;
        let socket = ready.as_ref().map(NotifySocket::path);
        let bundle = self.bundle(&id, &program, socket.as_deref())?;
        let (pid_file, log) = (bundle.join("pid"), bundle.join("log"));
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.state());
        command.arg("--log").arg(&log).arg("run");
        command.arg("--pid-file").arg(&pid_file);
        command.arg("--bundle").arg(&bundle).arg(&id);
        let begun = Instant::now();
        let mut child = self.network.spawn(program.connected(command))?;
        let pid = loop {
            if let Some(pid) = read_pid(&pid_file) {
                break pid;
            }
            if child.try_wait()?.is_some() || begun.elapsed() > START_TIMEOUT {
                // It may have ended by itself since.
                if let Some(pid) = read_pid(&pid_file) {
                    break pid;
                }
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(io::Error::other(format!("runc: {}", said.trim())));
            }
            std::thread::sleep(TICK);
        };
        let up = u64::try_from(begun.elapsed().as_micros());
        self.up_us.store(up.unwrap_or(u64::MAX), Relaxed);
        child.set_first_process(pid);
        child.listen(ready);
        Ok(child)
    }

    fn facts(&self) -> BTreeMap<&'static str, Value> {
        BTreeMap::from([("up_us", json!(self.up_us.load(Relaxed)))])
    }
}

impl Drop for Oci {
    fn drop(&mut self) {
        // Containers whose child has not ended; runc removes the others by itself.
        for entry in fs::read_dir(self.state()).into_iter().flatten().flatten() {
            let mut command = Command::new("runc");
            command.arg("--root").arg(self.state());
            command.args(["delete", "--force"]).arg(entry.file_name());
            if let Err(error) = command.output() {
                tracing::warn!("runc delete: {error}");
            }
        }
    }
}

fn read_pid(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    text.trim().parse().ok().map(Pid::from_raw)
}

/// A program and the files in its container's root, from which runc's bundle is written.
pub(crate) struct Bundle {
    words: Vec<String>,
    variables: Vec<String>,
    pub(crate) files: BTreeSet<PathBuf>,
}

impl Bundle {
    pub(crate) fn new(program: &Program) -> io::Result<Self> {
        let [name, arguments @ ..] = program.words() else {
            return Err(io::Error::other("a program without a name"));
        };
        let path = in_path(name).ok_or(io::ErrorKind::NotFound)?;
        let mut files = libraries(&path)?;
        files.extend(program.needed().map(Path::to_path_buf));
        let words = std::iter::once(path.as_os_str()).chain(arguments.iter().map(AsRef::as_ref));
        let words = words.map(|word| word.to_string_lossy().into_owned());
        let words = words.collect();
        files.insert(path);
        Ok(Self {
            words,
            variables: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
            files,
        })
    }

    /// Tells the program the socket at which it says that it is ready.
    fn set_notify_socket(&mut self, socket: &Path) {
        self.files.insert(socket.to_path_buf());
        self.set_variable(format!("{NOTIFY_SOCKET}={}", socket.display()));
    }

    /// Gives the program an environment variable, as `NAME=value`.
    pub(crate) fn set_variable(&mut self, variable: String) {
        self.variables.push(variable);
    }

    /// The bundle's `config.json`. Without `network` the container shares its maker's network.
    pub(crate) fn config(
        &self,
        id: &str,
        network: Option<&Path>,
        cpus: &[usize],
        program: &Program,
    ) -> Value {
        let mut mounts = vec![
            json!({ "destination": "/proc", "type": "proc", "source": "proc" }),
            json!({
                "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "mode=755", "size=65536k"],
            }),
            json!({
                "destination": "/sys", "type": "sysfs", "source": "sysfs",
                "options": ["nosuid", "noexec", "nodev", "ro"],
            }),
        ];
        for file in &self.files {
            let access = if file.is_dir() { "rw" } else { "ro" };
            mounts.push(json!({
                "destination": file, "type": "bind", "source": file, "options": ["rbind", access],
            }));
        }
        let network = network.map(|path| json!({ "type": "network", "path": path }));
        let namespaces: Vec<_> = ["pid", "ipc", "uts", "mount"]
            .iter()
            .map(|kind| json!({ "type": kind }))
            .chain(network)
            .collect();
        let cpus: Vec<_> = cpus.iter().map(usize::to_string).collect();
        let cpu = match cpus.is_empty() {
            true => json!({}),
            false => json!({ "cpus": cpus.join(",") }),
        };
        let may = program.capabilities(CAPABILITIES);
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": { "uid": 0, "gid": 0 }, "cwd": "/", "args": self.words,
                "env": self.variables, "noNewPrivileges": true,
                "capabilities": { "bounding": may, "effective": may, "permitted": may },
            },
            "root": { "path": "rootfs", "readonly": true },
            "hostname": "lowroad",
            "mounts": mounts,
            "linux": {
                "namespaces": namespaces, "cgroupsPath": format!("/{id}"),
                "resources": { "cpu": cpu },
            },
        })
    }
}

/// Where a program is, as a shell finds it.
fn in_path(name: &OsStr) -> Option<PathBuf> {
    let found = match Path::new(name).components().count() {
        1 => {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path)
                .map(|folder| folder.join(name))
                .find(|file| file.is_file())
        }
        _ => Some(name.into()),
    };
    fs::canonicalize(found?).ok()
}
