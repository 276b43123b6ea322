//! Runs a program and tells its CPU time.

use std::fs;
use std::io::{self, Read};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// The unit of times in /proc, on every architecture.
const TICK: Duration = Duration::from_millis(10);
/// Of /proc/PID/stat, counted behind the name in parentheses: the program's own time in user and in kernel mode, then
/// that of the children that it waited for.
const TIMES: std::ops::Range<usize> = 11..15;

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
        let cpu = stat.ok().as_deref().and_then(cpu_time);
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

fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, columns) = stat.rsplit_once(')')?;
    let columns: Vec<&str> = columns.split_whitespace().collect();
    let times = columns
        .get(TIMES)?
        .iter()
        .map(|ticks| ticks.parse::<u32>().ok());
    Some(TICK * times.sum::<Option<u32>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_children_counts() {
        let stat = "7 (a ) b) Z 1 7 7 0 -1 4227084 0 0 0 0 1 2 30 400 20 0 1 0 99";
        assert_eq!(cpu_time(stat), Some(Duration::from_millis(4330)));
        assert_eq!(cpu_time("7 (a) Z 1"), None);
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
