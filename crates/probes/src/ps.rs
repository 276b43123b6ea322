//! The CPU time that `ps` shows: a process's own user and system time, by the kernel's ticks.
//!
//! Softirq work done on a process's behalf is missing or is charged to another one, and ticks
//! alias with anything periodic. It is shown beside the accountant's figures, never instead.

use std::fs;

use crate::Error;

/// utime + stime of a process, in nanoseconds, in steps of a tick (usually 10 ms).
///
/// # Errors
/// The process does not exist.
pub fn cpu_ns(pid: u32) -> Result<u64, Error> {
    let action = || format!("reading the CPU time of process {pid}");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(Error::bpf(action()))?;
    let ticks = parse(&stat).ok_or_else(|| Error::Config(action()))?;
    let hertz = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|hertz| u64::try_from(hertz).ok())
        .unwrap_or(100);
    Ok(ticks * (1_000_000_000 / hertz))
}

/// Fields 14 and 15, counted past the command, which may hold spaces and parentheses.
fn parse(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_may_hold_anything() {
        let stat = "7 (a b) (c) S 1 7 7 0 -1 4194560 100 0 0 0 123 45 0 0 20 0 1 0 9 1 1";
        assert_eq!(parse(stat), Some(168));
        assert_eq!(parse("7 (a"), None);
        assert!(cpu_ns(std::process::id()).is_ok());
    }
}
