//! What runs behind an agent inside: files put there, programs started there, whether it still answers. The
//! agent is a virtual machine's first program, or that of a container of an engine.

mod channel;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
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
use crate::environment::{Child, NOTIFY_SOCKET, Program, find};

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
        to: impl Write + Send + 'static,
        from: impl Read + Send + 'static,
    ) -> Self {
        Self {
            channel: Arc::new(Channel::open(to, from)),
            what,
            put: Mutex::default(),
            folders: Mutex::default(),
        }
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
            for library in boot::libraries(&path) {
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
        let mut head = mode.to_le_bytes().to_vec();
        head.extend(at.as_os_str().as_encoded_bytes());
        let parts = content.chunks(LARGEST).map(|part| (Kind::Input, part));
        let whole = [(Kind::Put, head.as_slice())].into_iter().chain(parts);
        let end = [(Kind::Input, &[][..])];
        let number = self.channel.number();
        self.channel.ask(number, whole.chain(end)).map(drop)
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

/// The agent's program.
pub(crate) fn agent() -> Result<PathBuf, Missing> {
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let named = std::env::var_os("LOWROAD_AGENT").map(PathBuf::from);
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().map(|folder| folder.join(AGENT));
    let built = own
        .ancestors()
        .map(|folder| folder.join(&triple).join("agent").join(AGENT));
    named
        .into_iter()
        .chain(beside)
        .chain(built)
        .find(|program| program.is_file())
        .ok_or_else(|| Missing::new("it needs netbench-agent inside", "cargo xtask agent"))
}
