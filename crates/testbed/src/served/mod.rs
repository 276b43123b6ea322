//! What runs behind an agent inside: files put there, programs started there, whether it still answers. The
//! agent is a virtual machine's first program, or that of a container of an engine.

mod channel;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use datapath::Missing;
use guest::{Kind, LARGEST, VERSION};

pub(crate) use self::channel::Carrier;
use self::channel::Channel;
pub(crate) use self::program::GuestProgram;
use crate::environment::{Child, NOTIFY_SOCKET, Program, find, libraries};

/// What its program is called.
pub(crate) const AGENT: &str = "netbench-agent";

/// Where a program inside says that it is ready, as a service does to its manager.
#[derive(Debug)]
pub(crate) struct Ready {
    /// An abstract socket, which all that have the agent's network can reach.
    name: String,
    /// The program is told; else what runs it tells the one that matters.
    told: bool,
}

impl Ready {
    /// For a program that tells, and none for others.
    pub(crate) fn of(program: &Program, told: bool) -> Option<Self> {
        static PROGRAMS: AtomicU32 = AtomicU32::new(0);
        program.tells_ready().then(|| {
            let (process, number) = (std::process::id(), PROGRAMS.fetch_add(1, Ordering::Relaxed));
            let name = format!("lowroad-ready-{process}-{number}");
            Self { name, told }
        })
    }

    /// What tells a program.
    pub(crate) fn variable(&self) -> String {
        format!("{NOTIFY_SOCKET}=@{}", self.name)
    }
}

/// The agent inside, and what it was given.
#[derive(Debug)]
pub(crate) struct Served {
    channel: Arc<Channel>,
    /// What an error calls that which it is inside of.
    what: &'static str,
    /// What was put into it: files by path, as they were then.
    put: Mutex<BTreeMap<PathBuf, (u64, Option<SystemTime>)>>,
    /// Folders that programs worked in since it was last cleared.
    folders: Mutex<BTreeSet<PathBuf>>,
}

impl Served {
    /// Talks to the agent that reads from `to` and says things at `from`.
    pub(crate) fn open(
        what: &'static str,
        to: impl Into<OwnedFd>,
        from: impl Read + Send + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            channel: Arc::new(Channel::open(to, from)?),
            what,
            put: Mutex::default(),
            folders: Mutex::default(),
        })
    }

    /// The kernel that the agent runs on, once it has said so; none within the time.
    pub(crate) fn hello(&self, within: Duration) -> Option<Result<String, String>> {
        let hello = self.channel.hello(within)?;
        Some(match hello.value() {
            Some((version, kernel)) if version.cast_unsigned() == VERSION => {
                Ok(String::from_utf8_lossy(kernel).into_owned())
            }
            other => {
                let version = other.map(|(version, _)| version);
                Err(format!(
                    "it speaks version {version:?} of the protocol, not {VERSION}"
                ))
            }
        })
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.channel.is_gone()
    }

    /// Whether it still answers.
    pub(crate) fn ping(&self) -> io::Result<()> {
        self.channel.ping()
    }

    /// Its routing netlink.
    pub(crate) fn carrier(&self) -> Carrier {
        self.channel.carrier()
    }

    /// Starts a program of this machine inside, with what it needs under the same paths. `outside` is the
    /// process of this machine that does the work of the one with that id inside.
    pub(crate) fn start(
        &self,
        program: Program,
        outside: impl FnOnce(u32) -> u32,
    ) -> io::Result<Child> {
        let ready = Ready::of(&program, true);
        self.start_heard(program, ready.as_ref(), outside)
    }

    /// As `start`, and hears there that it is ready.
    pub(crate) fn start_heard(
        &self,
        program: Program,
        ready: Option<&Ready>,
        outside: impl FnOnce(u32) -> u32,
    ) -> io::Result<Child> {
        let name = PathBuf::from(&program.words()[0]);
        // A name without a slash is looked for inside where this machine has no such program.
        if let Some(path) = find(&name) {
            for library in libraries(&path)? {
                self.put(&library, &library)?;
            }
            self.put(&path, &path)?;
        }
        let (needs, folder) = program.apart();
        for needed in needs {
            if needed.is_dir() {
                let what = format!("{}: {} shares no folder", needed.display(), self.what);
                return Err(io::Error::other(what));
            }
            self.put(needed, needed)?;
        }
        if let Some(folder) = folder {
            self.work_in(folder)?;
        }
        GuestProgram::start(&self.channel, program, ready, outside).map(Child::in_guest)
    }

    /// Kills everything that runs inside but what answers here, and removes the folders it worked in.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let channel = &self.channel;
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut named = Vec::new();
        for folder in std::mem::take(&mut *folders) {
            let mut put = self.put.lock().unwrap_or_else(PoisonError::into_inner);
            put.retain(|path, _| !path.starts_with(&folder));
            named.extend(folder.as_os_str().as_encoded_bytes());
            named.push(0);
        }
        channel
            .ask(channel.number(), [(Kind::Clear, named.as_slice())])
            .map(drop)
    }

    /// Makes a folder of this machine inside, with the files that it holds.
    fn work_in(&self, folder: &Path) -> io::Result<()> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if folders.insert(folder.to_owned()) {
            // A folder is made where a file is given.
            self.write(&folder.join(".folder"), 0o600, &[])?;
        }
        drop(folders);
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                self.put(&entry.path(), &entry.path())?;
            }
        }
        Ok(())
    }

    /// Writes a file inside.
    pub(crate) fn write(&self, at: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let head = head(at, mode);
        let parts = content.chunks(LARGEST).map(|part| (Kind::Input, part));
        let whole = [(Kind::Put, head.as_slice())].into_iter().chain(parts);
        let end = [(Kind::Input, &[][..])];
        let number = self.channel.number();
        self.channel.ask(number, whole.chain(end)).map(drop)
    }

    /// Writes files that are short, such as settings of its kernel; what one of them is refused for comes
    /// with its place among them.
    pub(crate) fn write_all(&self, files: &[(&Path, &str)]) -> Result<(), (usize, io::Error)> {
        let heads: Vec<Vec<u8>> = files.iter().map(|(at, _)| head(at, 0o644)).collect();
        let asked = files.iter().zip(&heads).map(|((_, content), head)| {
            let content = (Kind::Input, content.as_bytes());
            let whole = [(Kind::Put, head.as_slice()), content, (Kind::Input, &[])];
            whole.to_vec()
        });
        let asked: Vec<_> = asked.collect();
        let answers = self.channel.ask_all(&asked).map_err(|error| (0, error))?;
        let mut answers = answers.into_iter().enumerate();
        let refused = answers.find_map(|(number, answer)| Some((number, answer.err()?)));
        refused.map_or(Ok(()), Err)
    }

    /// What a file inside says.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.channel.read(path.as_os_str().as_encoded_bytes())
    }

    /// Puts a file of this machine inside, unless it is there as it is here.
    fn put(&self, source: &Path, at: &Path) -> io::Result<()> {
        let metadata = fs::metadata(source)?;
        let as_it_is = (metadata.len(), metadata.modified().ok());
        let mut put = self.put.lock().unwrap_or_else(PoisonError::into_inner);
        if put.get(at) == Some(&as_it_is) {
            return Ok(());
        }
        let mode = metadata.permissions().mode() & 0o7777;
        self.write(at, mode, &fs::read(source)?)?;
        put.insert(at.to_owned(), as_it_is);
        Ok(())
    }
}

/// What is said of a file before its parts.
fn head(at: &Path, mode: u32) -> Vec<u8> {
    let mut head = mode.to_le_bytes().to_vec();
    head.extend(at.as_os_str().as_encoded_bytes());
    head
}

/// The agent's program: the file that `LOWROAD_AGENT` names, else where a build puts it, else beside this
/// program.
pub fn agent() -> Result<PathBuf, Missing> {
    let named = std::env::var_os("LOWROAD_AGENT").map(PathBuf::from);
    agent_of(named, &std::env::current_exe().unwrap_or_default())
}

fn agent_of(named: Option<PathBuf>, own: &Path) -> Result<PathBuf, Missing> {
    if let Some(named) = named {
        return match named.is_file() {
            true => Ok(named),
            false => Err(Missing::new(
                format!("LOWROAD_AGENT: {} is no file", named.display()),
                "cargo xtask agent, and leave it unset",
            )),
        };
    }
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    // Tests are some folders below their build.
    let built = own
        .ancestors()
        .map(|folder| folder.join(&triple).join("agent").join(AGENT));
    let beside = own.parent().map(|folder| folder.join(AGENT));
    built
        .chain(beside)
        .find(|program| program.is_file())
        .ok_or_else(|| Missing::new(format!("{AGENT} is not built"), "cargo xtask agent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_what_is_named_else_of_the_build_else_beside_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let make = |path: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "").unwrap();
        };
        let own = at("target/debug/deps/lowroad-compare");
        let missing = agent_of(None, &own).unwrap_err();
        assert_eq!(missing.remedy, "cargo xtask agent");
        make("target/debug/deps/netbench-agent");
        let beside = agent_of(None, &own).unwrap();
        assert_eq!(beside, at("target/debug/deps/netbench-agent"));
        let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let built = format!("target/{triple}/agent/netbench-agent");
        make(&built);
        assert_eq!(agent_of(None, &own).unwrap(), at(&built));
        make("elsewhere");
        let named = agent_of(Some(at("elsewhere")), &own).unwrap();
        assert_eq!(named, at("elsewhere"));
        let wrong = agent_of(Some(at("nowhere")), &own).unwrap_err();
        assert!(wrong.what.contains("nowhere is no file"), "{wrong}");
    }
}
