//! One virtual machine: qemu with a kernel, a file system in memory, a serial port and a tap for each link.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use boot::{Flavour, Image, Kernel};
use guest::{Kind, LARGEST, VERSION};
use nix::sys::signal::Signal;

use super::accelerator::Accelerator;
use super::channel::Channel;
use super::program::GuestProgram;
use crate::Error;
use crate::environment::{Child, Network, Program, Wanted, find};

/// What a link, and a container in the guest, need that Debian builds as modules.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "af_packet",
    "veth",
    "bridge",
    "overlay",
];
/// Megabytes.
const MEMORY: u32 = 512;
/// What qemu says of a KVM that is another hypervisor's, in which a stock kernel does not run.
const KVM_FAILED: &str = "KVM internal error";

/// A booted guest.
#[derive(Debug)]
pub(super) struct Machine {
    // Dropped in this order: the process ends before its namespace does.
    qemu: Child,
    pub(super) channel: Arc<Channel>,
    pub(super) network: Network,
    pub(super) kernel: String,
    pub(super) accelerator: Accelerator,
    pub(super) ready_after: Duration,
    pub(super) shape: Shape,
    /// What was put into it: files by path, as they were then.
    put: Mutex<BTreeMap<PathBuf, (u64, Option<SystemTime>)>>,
    _folder: tempfile::TempDir,
}

/// What tells machines apart that are otherwise as good as each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) flavour: Flavour,
    pub(super) cpus: Vec<usize>,
    pub(super) links: usize,
}

impl Machine {
    /// Boots, and waits until the guest answers. It has as many CPUs as it may use of this machine's,
    /// or one where it may use any.
    pub(super) fn boot(
        shape: Shape,
        accelerator: Accelerator,
        name: &str,
        within: Duration,
    ) -> Result<Self, Error> {
        let failed = |what: &dyn std::fmt::Display| Error::Guest {
            name: name.to_owned(),
            what: what.to_string(),
        };
        let begun = Instant::now();
        let folder = crate::folder().map_err(|error| failed(&error))?;
        let kernel = Kernel::available(shape.flavour).map_err(|error| failed(&error))?;
        let initrd = folder.path().join("initrd");
        pack(&kernel, &initrd).map_err(|error| failed(&error))?;
        let network = Network::create(Wanted {
            name,
            cpus: &shape.cpus,
            links: shape.links,
        })?;
        let console = folder.path().join("console");
        let errors = folder.path().join("qemu.stderr");
        let program = Program::new("qemu-system-x86_64")
            .args(accelerator.arguments())
            .args(arguments(&shape))
            .args(["-chardev".into(), joined("file,id=console,path=", &console)])
            .args(["-kernel".into(), kernel.image.into_os_string()])
            .args(["-initrd".into(), initrd.into_os_string()])
            .stdin(crate::environment::Stream::Piped)
            .stdout(crate::environment::Stream::Piped)
            .stderr(File::create(&errors).map_err(|error| failed(&error))?);
        let mut qemu = network
            .spawn(program.command())
            .map_err(|error| failed(&error))?;
        let (Some(to), Some(from)) = (qemu.stdin(), qemu.stdout()) else {
            return Err(failed(&"its serial port is no pipe"));
        };
        let channel = Arc::new(Channel::open(to, from));
        let said = || fs::read_to_string(&errors).unwrap_or_default();
        let printed = || ending(&fs::read_to_string(&console).unwrap_or_default());
        let hello = loop {
            if let Some(hello) = channel.hello(Duration::from_millis(50)) {
                break hello;
            }
            let why = match () {
                () if said().contains(KVM_FAILED) => said(),
                () if channel.is_gone() => {
                    format!(
                        "qemu ended: {}; its console: {}",
                        ending(&said()),
                        printed()
                    )
                }
                () if begun.elapsed() > within => {
                    let within = within.as_secs();
                    format!("no answer after {within} s; its console: {}", printed())
                }
                () => continue,
            };
            return Err(failed(&ending(&why)));
        };
        let kernel = match hello.value() {
            Some((version, kernel)) if version.cast_unsigned() == VERSION => {
                String::from_utf8_lossy(kernel).into_owned()
            }
            other => {
                let version = other.map(|(version, _)| version);
                return Err(failed(&format!(
                    "it speaks version {version:?} of the protocol, not {VERSION}"
                )));
            }
        };
        Ok(Self {
            qemu,
            channel,
            network,
            kernel,
            accelerator,
            ready_after: begun.elapsed(),
            shape,
            put: Mutex::default(),
            _folder: folder,
        })
    }

    /// Takes its CPU time away: an idle guest has a clock that ticks beside other hosts' trials.
    pub(super) fn sleep(&self) -> io::Result<()> {
        self.qemu.signal(Signal::SIGSTOP)
    }

    pub(super) fn wake(&self) -> io::Result<()> {
        self.qemu.signal(Signal::SIGCONT)
    }

    /// Starts a program of this machine inside, with what it needs under the same paths.
    pub(super) fn start(&self, program: Program) -> io::Result<Child> {
        let name = PathBuf::from(&program.words()[0]);
        // A name without a slash is looked for in the guest where this machine has no such program.
        if let Some(path) = find(&name) {
            for library in boot::libraries(&path) {
                self.put(&library, &library)?;
            }
            self.put(&path, &path)?;
        }
        for needed in program.needed().map(Path::to_owned).collect::<Vec<_>>() {
            if needed.is_dir() {
                let what = format!("{}: a virtual machine shares no folder", needed.display());
                return Err(io::Error::other(what));
            }
            self.put(&needed, &needed)?;
        }
        let program = GuestProgram::start(&self.channel, self.qemu.id(), program)?;
        Ok(Child::in_guest(program))
    }

    /// Kills everything that the guest runs but what answers here.
    pub(super) fn clear(&self) -> io::Result<()> {
        let channel = &self.channel;
        channel.ask(channel.number(), [(Kind::Clear, &[][..])])
    }

    /// Puts a file of this machine into the guest, unless it is there as it is here.
    fn put(&self, source: &Path, at: &Path) -> io::Result<()> {
        let metadata = fs::metadata(source)?;
        let as_it_is = (metadata.len(), metadata.modified().ok());
        let mut put = self.put.lock().unwrap_or_else(PoisonError::into_inner);
        if put.get(at) == Some(&as_it_is) {
            return Ok(());
        }
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777;
        self.write(at, mode, &fs::read(source)?)?;
        put.insert(at.to_owned(), as_it_is);
        Ok(())
    }

    /// Writes a file in the guest.
    pub(super) fn write(&self, at: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let mut head = mode.to_le_bytes().to_vec();
        head.extend(at.as_os_str().as_encoded_bytes());
        let parts = content.chunks(LARGEST).map(|part| (Kind::Input, part));
        let whole = [(Kind::Put, head.as_slice())].into_iter().chain(parts);
        self.channel
            .ask(self.channel.number(), whole.chain([(Kind::Input, &[][..])]))
    }
}

fn arguments(shape: &Shape) -> Vec<String> {
    let cpus = shape.cpus.len().max(1);
    let mut words: Vec<String> = [
        "-M pc -nodefaults -no-user-config -no-reboot -display none -serial chardev:console",
        "-device virtio-serial-pci -chardev stdio,id=host,signal=off",
    ]
    .iter()
    .flat_map(|line| line.split(' '))
    .map(str::to_owned)
    .collect();
    words.extend(["-smp".to_owned(), cpus.to_string()]);
    words.extend(["-m".to_owned(), MEMORY.to_string()]);
    let port = format!("virtserialport,chardev=host,name={}", guest::PORT);
    words.extend(["-device".to_owned(), port]);
    // Who sleeps between trials has not hung: nobody is to look for that.
    let kernel = "console=ttyS0 quiet panic=-1 nowatchdog rcupdate.rcu_cpu_stall_suppress=1";
    words.extend(["-append".to_owned(), kernel.to_owned()]);
    let vhost = match Path::new("/dev/vhost-net").exists() {
        true => ",vhost=on",
        false => "",
    };
    for number in 0..shape.links {
        let tap = super::tap(number);
        words.extend([
            "-netdev".to_owned(),
            format!("tap,id=net{number},ifname={tap},script=no,downscript=no{vhost}"),
            "-device".to_owned(),
            // Without a ROM the firmware does not try to boot from it.
            format!("virtio-net-pci,netdev=net{number},romfile="),
        ]);
    }
    words
}

/// A file system that holds the agent and what the kernel has to load.
fn pack(kernel: &Kernel, to: &Path) -> Result<(), Error> {
    let mut image = Image::default();
    for folder in ["proc", "sys", "dev", "run", "tmp"] {
        image.folder(Path::new("/").join(folder));
    }
    let said = |error: boot::Error| Error::Guest {
        name: kernel.release.clone(),
        what: error.to_string(),
    };
    image.file("/init", super::init_program()?);
    image.modules(&kernel.modules(MODULES).map_err(said)?);
    image.write_whole(to).map_err(said)
}

fn joined(option: &str, path: &Path) -> std::ffi::OsString {
    let mut word = std::ffi::OsString::from(option);
    word.push(path);
    word
}

/// The last lines of what was said, as one.
fn ending(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    last.join("; ").trim().to_owned()
}
