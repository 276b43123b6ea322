//! A booted guest, driven by lines over its serial port.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Boot to shell takes a few seconds; beside the tests of this machine it may take many more.
const BOOT_TIMEOUT: Duration = Duration::from_secs(600);
/// A little less of the CPUs than the tests of this machine get, of which some are held to their pace. With
/// much less, the guest's own tests would run into their deadlines.
const NICENESS: &str = "3";
/// Printed by the guest's init once it reads commands.
const READY: &str = "lowroad-guest-ready";
/// Printed by the guest's shell after each command, followed by its exit status.
const MARK: &str = "lowroad-guest-status";

#[derive(Debug)]
pub(super) struct Console {
    qemu: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// A guest that KVM can boot is ready long before.
const KVM_BOOT_TIMEOUT: Duration = Duration::from_secs(20);

/// The accelerator that executes a guest's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    Emulation,
}

impl Accelerator {
    /// KVM where this machine has it and a guest boots with it, else QEMU's emulation. KVM may be there
    /// without the CPU's help, as another hypervisor's: a stock kernel does not boot in such a one.
    pub(super) fn choose(kernel: &Path, initrd: &Path) -> Self {
        if !kvm_in_hardware() {
            return Self::Emulation;
        }
        match Console::start(kernel, initrd, Self::Kvm, KVM_BOOT_TIMEOUT) {
            Ok(_) => Self::Kvm,
            Err(error) => {
                println!("KVM boots no guest here, which is emulated instead: {error:#}");
                Self::Emulation
            }
        }
    }

    /// QEMU's arguments. One thread emulates both CPUs in turn: with a thread each, one may go on
    /// executing code that the other has patched (the breakpoint of a static key, at which it then
    /// traps for ever).
    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Emulation => ["-accel", "tcg,thread=single", "-cpu", "max"],
        }
    }
}

fn kvm_in_hardware() -> bool {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let opened = File::options().read(true).write(true).open("/dev/kvm");
    opened.is_ok()
        && flags
            .split_whitespace()
            .any(|flag| flag == "vmx" || flag == "svm")
}

/// The guest's NUMA nodes, each with a CPU and half of the memory.
const NODES: [[&str; 2]; 2] = [
    [
        "memory-backend-ram,id=memory0,size=1G",
        "node,nodeid=0,cpus=0,memdev=memory0",
    ],
    [
        "memory-backend-ram,id=memory1,size=1G",
        "node,nodeid=1,cpus=1,memdev=memory1",
    ],
];

/// The result of a command. Without a status, the command did not end.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) status: Option<i32>,
    pub(super) output: String,
}

impl Console {
    /// Boots and waits for the shell.
    pub(super) fn boot(kernel: &Path, initrd: &Path, accelerator: Accelerator) -> Result<Self> {
        Self::start(kernel, initrd, accelerator, BOOT_TIMEOUT)
    }

    fn start(
        kernel: &Path,
        initrd: &Path,
        accelerator: Accelerator,
        within: Duration,
    ) -> Result<Self> {
        let mut qemu = Command::new("nice")
            .args(["-n", NICENESS, "qemu-system-x86_64", "-M", "pc"])
            .args(accelerator.arguments())
            .args(["-smp", "2", "-m", "2048", "-nodefaults", "-no-reboot"])
            .args(
                NODES
                    .iter()
                    .flat_map(|node| ["-object", node[0], "-numa", node[1]]),
            )
            .args(["-display", "none", "-serial", "stdio"])
            .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initrd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("qemu-system-x86_64 does not start")?;
        let input = qemu.stdin.take().context("the guest's serial input")?;
        let output = qemu.stdout.take().context("the guest's serial output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).replace('\r', "");
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let console = Self { qemu, input, lines };
        console.wait_for(READY, within)?;
        Ok(console)
    }

    fn wait_for(&self, word: &str, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        let mut seen = String::new();
        while let Some(line) = self.line(deadline) {
            if line == word {
                return Ok(());
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        bail!("the guest does not reach its shell\n{seen}")
    }

    /// The next line, unless the guest is silent until the deadline or gone.
    fn line(&self, deadline: Instant) -> Option<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).ok()
    }

    /// Runs one shell command and waits for its end.
    pub(super) fn run(&mut self, command: &str, within: Duration) -> Result<CommandResult> {
        // The mark is written in two halves so that an echo of this line is not taken for it.
        let (head, tail) = MARK.split_at(7);
        writeln!(
            self.input,
            "({command}) </dev/null 2>&1; echo {head}''{tail} $?"
        )
        .context("the guest is gone")?;
        let deadline = Instant::now() + within;
        let mut output = String::new();
        while let Some(line) = self.line(deadline) {
            if let Some((before, status)) = line.split_once(MARK) {
                output.push_str(before);
                let status = status.trim().parse().ok();
                return Ok(CommandResult { status, output });
            }
            output.push_str(&line);
            output.push('\n');
        }
        Ok(CommandResult {
            status: None,
            output,
        })
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // Nothing in the guest is worth an orderly end: its file system is memory.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
