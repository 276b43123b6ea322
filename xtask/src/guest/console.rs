//! A booted guest, driven by lines over its serial port.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Boot to shell takes a few seconds; a busy machine may need many more.
const BOOT: Duration = Duration::from_secs(120);
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

/// How a command ended: without a status, it did not.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: Option<i32>,
    pub(super) output: String,
}

impl Console {
    /// Boots and waits for the shell. KVM is not used: where it exists it may be another
    /// hypervisor's, in which a stock kernel does not boot. One thread emulates both CPUs in turn:
    /// with a thread each, one may go on executing code that the other has patched (the breakpoint
    /// of a static key, at which it then traps for ever).
    pub(super) fn boot(kernel: &Path, initrd: &Path) -> Result<Self> {
        let mut qemu = Command::new("qemu-system-x86_64")
            .args(["-M", "pc", "-accel", "tcg,thread=single", "-cpu", "max"])
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
        console.wait_for(READY, BOOT)?;
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
    pub(super) fn run(&mut self, command: &str, within: Duration) -> Result<Ended> {
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
                return Ok(Ended { status, output });
            }
            output.push_str(&line);
            output.push('\n');
        }
        Ok(Ended {
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
