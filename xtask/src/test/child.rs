//! Runs a program and tells its CPU time.

use std::fs;
use std::io::{self, Read};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::cpu_time;

/// Runs a program to its end. The CPU time is that of the program and of all the processes that were waited for.
pub(super) fn run(command: &mut Command) -> io::Result<(Output, Duration)> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let stdout = scope.spawn(|| read(stdout));
        let stderr = scope.spawn(|| read(stderr));
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        // It stays in /proc until it is waited for without this flag.
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        let output = Output {
            status: child.wait()?,
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
        };
        let cpu = stat.ok().as_deref().and_then(cpu_time::own_and_children);
        Ok((output, cpu.unwrap_or_default()))
    })
}

/// What a pipe holds until its end, or until it breaks.
fn read(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_children_counts() {
        // The loop runs in a child of the shell.
        let script =
            "echo out; echo err >&2; (i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done); exit 3";
        let (output, cpu) = run(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(output.status.code(), Some(3));
        let written = [output.stdout.as_slice(), output.stderr.as_slice()];
        assert_eq!(written, [b"out\n", b"err\n"]);
        assert!(cpu > Duration::ZERO);
    }
}
