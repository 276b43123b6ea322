//! One virtual machine: qemu with a kernel, a file system in memory, a serial port and a tap for each link.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use boot::{Flavour, Image, Kernel};
use nix::sys::signal::Signal;

use super::accelerator::{self, Accelerator};
use crate::agent::binary::agent;
use crate::agent::client::Agent;
use crate::agent::notify::NotifyAddress;
use crate::error::Error;
use crate::names;
use crate::network::Network;
use crate::process::child::Child;
use crate::process::program::{Program, Stream};

/// Debian's kernel modules that a link, a datapath at tc, and a container in the guest need.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "af_packet",
    "sch_ingress",
    "cls_bpf",
    "veth",
    "bridge",
    "overlay",
];
/// Half of it is room for files, of which an unoptimised `lowroad` is the largest.
pub(super) const MEMORY_MIB: u32 = 1024;
/// qemu's error for the KVM of another hypervisor, in which a stock kernel does not run.
const KVM_FAILED: &str = "KVM internal error";

/// A booted guest.
#[derive(Debug)]
pub(crate) struct Machine {
    // Dropped in this order: the process ends before its namespace does.
    qemu: Child,
    pub(super) agent: Agent,
    pub(super) network: Network,
    pub(super) kernel: String,
    pub(super) accelerator: Accelerator,
    /// The kernel of this machine moves its frames, not qemu.
    pub(super) vhost: bool,
    pub(super) ready_after: Duration,
    pub(super) shape: Shape,
    _folder: tempfile::TempDir,
}

/// The properties by which a pooled machine fits a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) flavour: Flavour,
    pub(super) cpus: Vec<usize>,
    pub(super) links: usize,
    /// Whether its memory is in this machine's huge pages.
    pub(super) huge_pages: bool,
}

impl Shape {
    /// Its own CPUs: as many as it may use of this machine's, or one where it may use any.
    pub(super) fn count(&self) -> usize {
        self.cpus.len().max(1)
    }
}

impl Machine {
    /// Boots, and waits until the guest answers.
    pub(super) fn boot(
        shape: Shape,
        accelerator: Accelerator,
        name: &str,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let failed = |what: &dyn std::fmt::Display| Error::Guest {
            name: name.to_owned(),
            what: what.to_string(),
        };
        let begun = Instant::now();
        let vhost = accelerator::vhost().is_ok();
        let folder = names::folder().map_err(|error| failed(&error))?;
        let kernel = Kernel::available(shape.flavour).map_err(|error| failed(&error))?;
        let initrd = folder.path().join("initrd");
        pack(&kernel, &initrd).map_err(|error| failed(&error))?;
        let network = Network::create(name, &shape.cpus)?;
        let console = folder.path().join("console");
        let errors = folder.path().join("qemu.stderr");
        let program = Program::new("qemu-system-x86_64")
            .args(accelerator.arguments())
            .args(arguments(&shape, vhost))
            .args(["-chardev".into(), joined("file,id=console,path=", &console)])
            .args(["-kernel".into(), kernel.image.into_os_string()])
            .args(["-initrd".into(), initrd.into_os_string()])
            .stdin(Stream::Piped)
            .stdout(Stream::Piped)
            .stderr(File::create(&errors).map_err(|error| failed(&error))?);
        let mut qemu = network
            .spawn(program.command())
            .map_err(|error| failed(&error))?;
        let (Some(to), Some(from)) = (qemu.stdin(), qemu.stdout()) else {
            return Err(failed(&"its serial port is not a pipe"));
        };
        let agent = Agent::open("a virtual machine", to, from);
        let agent = agent.map_err(|error| failed(&error))?;
        let said = || fs::read_to_string(&errors).unwrap_or_default();
        let printed = || ending(&fs::read_to_string(&console).unwrap_or_default());
        let hello = loop {
            if let Some(hello) = agent.hello(Duration::from_millis(50)) {
                break hello;
            }
            let why = match () {
                () if said().contains(KVM_FAILED) => said(),
                () if agent.is_gone() => {
                    format!(
                        "qemu ended: {}; its console: {}",
                        ending(&said()),
                        printed()
                    )
                }
                () if begun.elapsed() > timeout => {
                    let seconds = timeout.as_secs();
                    format!("no answer after {seconds} s; its console: {}", printed())
                }
                () => continue,
            };
            return Err(failed(&ending(&why)));
        };
        let kernel = hello.map_err(|error| failed(&error))?;
        Ok(Self {
            qemu,
            agent,
            network,
            kernel,
            accelerator,
            vhost,
            ready_after: begun.elapsed(),
            shape,
            _folder: folder,
        })
    }

    /// Whether this machine's CPUs execute it: one that is emulated takes seconds to boot.
    pub(crate) fn is_fast(&self) -> bool {
        self.accelerator == Accelerator::Kvm
    }

    /// Takes its CPU time away: an idle guest has a clock that ticks beside other hosts' trials.
    pub(super) fn pause(&self) -> io::Result<()> {
        self.qemu.signal(Signal::SIGSTOP)
    }

    pub(super) fn resume(&self) -> io::Result<()> {
        self.qemu.signal(Signal::SIGCONT)
    }

    /// Starts a program of this machine inside, with the files that it needs under the same paths.
    pub(super) fn start(&self, program: Program) -> io::Result<Child> {
        // qemu does the work of all processes in the guest.
        self.agent.start(program, |_inside| self.qemu.id())
    }

    /// As `start`, and hears there that it is ready.
    pub(super) fn start_with(
        &self,
        program: Program,
        ready: Option<&NotifyAddress>,
    ) -> io::Result<Child> {
        self.agent
            .start_with(program, ready, |_inside| self.qemu.id())
    }
}

fn arguments(shape: &Shape, vhost: bool) -> Vec<String> {
    let cpus = shape.count();
    let mut words: Vec<String> = [
        "-M pc -nodefaults -no-user-config -no-reboot -display none -serial chardev:console",
        "-device virtio-serial-pci -chardev stdio,id=host,signal=off",
    ]
    .iter()
    .flat_map(|line| line.split(' '))
    .map(str::to_owned)
    .collect();
    words.extend(["-smp".to_owned(), cpus.to_string()]);
    words.extend(["-m".to_owned(), MEMORY_MIB.to_string()]);
    if shape.huge_pages {
        let memory = "memory-backend-memfd,id=memory,hugetlb=on,hugetlbsize=2M,prealloc=on";
        words.extend(["-object".to_owned(), format!("{memory},size={MEMORY_MIB}M")]);
        words.extend(["-machine", "memory-backend=memory"].map(str::to_owned));
    }
    let port = format!("virtserialport,chardev=host,name={}", guest::PORT);
    words.extend(["-device".to_owned(), port]);
    // A guest that is paused between trials has not hung: its kernel must not look for stalls.
    let kernel = "console=ttyS0 quiet panic=-1 nowatchdog rcupdate.rcu_cpu_stall_suppress=1";
    words.extend(["-append".to_owned(), kernel.to_owned()]);
    let vhost = if vhost { ",vhost=on" } else { "" };
    for number in 0..shape.links {
        let tap = tap(number);
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

/// The name that the guest's tap of this number has while it is not plugged in.
pub(super) fn tap(number: usize) -> String {
    format!("tap{number}")
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
    image.file("/init", agent()?);
    image.modules(&kernel.modules(MODULES).map_err(said)?);
    image.write_whole(to).map_err(said)
}

fn joined(option: &str, path: &Path) -> std::ffi::OsString {
    let mut word = std::ffi::OsString::from(option);
    word.push(path);
    word
}

/// The last lines of a text, joined.
fn ending(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    last.join("; ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_has_a_tap_which_the_kernel_serves_where_it_can() {
        let shape = Shape {
            flavour: Flavour::Cloud,
            cpus: vec![0, 3],
            links: 2,
            huge_pages: false,
        };
        let words = |vhost| arguments(&shape, vhost).join(" ");
        let without = words(false);
        assert!(without.contains("-smp 2 "), "{without}");
        assert!(!without.contains("vhost"), "{without}");
        let with = words(true);
        for number in 0..2 {
            let tap =
                format!("-netdev tap,id=net{number},ifname=tap{number},script=no,downscript=no");
            assert!(without.contains(&format!("{tap} ")), "{without}");
            assert!(with.contains(&format!("{tap},vhost=on ")), "{with}");
        }
    }
}
