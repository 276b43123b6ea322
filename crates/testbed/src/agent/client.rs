//! Asks an agent: to write and read files, to start programs, and whether it still answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use guest::{Kind, MAX_FRAME_LEN, VERSION};

use super::channel::{Carrier, Channel};
use super::notify::NotifyAddress;
use super::program::AgentProgram;
use crate::process::child::Child;
use crate::process::libraries::libraries;
use crate::process::program::{Program, find};

/// The connection to an agent, and what was copied to it.
#[derive(Debug)]
pub(crate) struct Agent {
    channel: Arc<Channel>,
    /// The place that it runs in, for error messages: `a virtual machine`.
    place: &'static str,
    /// The files that were copied, by path, with size and time of modification.
    copies: Mutex<BTreeMap<PathBuf, (u64, Option<SystemTime>)>>,
    /// Folders that programs worked in since it was last cleared.
    folders: Mutex<BTreeSet<PathBuf>>,
}

impl Agent {
    /// Connects to the agent that reads from `to` and writes to `from`.
    pub(crate) fn open(
        place: &'static str,
        to: impl Into<OwnedFd>,
        from: impl Read + Send + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            channel: Arc::new(Channel::open(to, from)?),
            place,
            copies: Mutex::default(),
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
        let ready = NotifyAddress::new(&program, true);
        self.start_with(program, ready.as_ref(), outside)
    }

    /// Like `start`, with an address at which the program says that it is ready.
    pub(crate) fn start_with(
        &self,
        program: Program,
        ready: Option<&NotifyAddress>,
        outside: impl FnOnce(u32) -> u32,
    ) -> io::Result<Child> {
        let name = PathBuf::from(&program.words()[0]);
        // A name without a slash is looked for inside where this machine has no such program.
        if let Some(path) = find(&name) {
            for library in libraries(&path)? {
                self.copy(&library, &library)?;
            }
            self.copy(&path, &path)?;
        }
        let (needs, folder) = program.files_and_folder();
        for needed in needs {
            if needed.is_dir() {
                let what = format!("{}: {} shares no folder", needed.display(), self.place);
                return Err(io::Error::other(what));
            }
            self.copy(needed, needed)?;
        }
        if let Some(folder) = folder {
            self.work_in(folder)?;
        }
        AgentProgram::start(&self.channel, program, ready, outside).map(Child::remote)
    }

    /// Kills every process inside except the agent, and removes the folders that programs worked in.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let channel = &self.channel;
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut named = Vec::new();
        for folder in std::mem::take(&mut *folders) {
            let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
            copies.retain(|path, _| !path.starts_with(&folder));
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
                self.copy(&entry.path(), &entry.path())?;
            }
        }
        Ok(())
    }

    /// Writes a file inside.
    pub(crate) fn write(&self, at: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let head = head(at, mode);
        let parts = content
            .chunks(MAX_FRAME_LEN)
            .map(|part| (Kind::Input, part));
        let whole = [(Kind::Put, head.as_slice())].into_iter().chain(parts);
        let end = [(Kind::Input, &[][..])];
        let number = self.channel.number();
        self.channel.ask(number, whole.chain(end)).map(drop)
    }

    /// Writes short files, such as settings of its kernel. An error comes with the place of the file among them.
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

    /// Reads a file inside.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.channel.read(path.as_os_str().as_encoded_bytes())
    }

    /// Copies a file of this machine inside, unless the same version is there.
    fn copy(&self, source: &Path, at: &Path) -> io::Result<()> {
        let metadata = fs::metadata(source)?;
        let as_it_is = (metadata.len(), metadata.modified().ok());
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if copies.get(at) == Some(&as_it_is) {
            return Ok(());
        }
        let mode = metadata.permissions().mode() & 0o7777;
        self.write(at, mode, &fs::read(source)?)?;
        copies.insert(at.to_owned(), as_it_is);
        Ok(())
    }
}

/// The first part of a `Put`: the mode and the path.
fn head(at: &Path, mode: u32) -> Vec<u8> {
    let mut head = mode.to_le_bytes().to_vec();
    head.extend(at.as_os_str().as_encoded_bytes());
    head
}
