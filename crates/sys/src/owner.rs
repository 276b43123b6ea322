//! The owner of a thing that outlives its maker: identified by process id and start time, so that a later
//! process with the same id is not taken for the owner.

use std::fmt;
use std::fs;
use std::str::FromStr;

/// Process ids are lower than this.
const PID_MAX_LIMIT: u32 = 4 << 20;
/// The earliest start of an owner, in clock ticks: 0.6 s after boot. Owners start later, and months, days and
/// times of day are lower numbers.
const MIN_START_TICKS: u64 = 60;

/// A process, for as long as the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    pub pid: u32,
    /// Clock ticks between boot and the process's start.
    pub started: u64,
}

impl Owner {
    /// This process.
    pub fn current() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            started: start_time(pid).unwrap_or_default(),
        }
    }

    /// Whether the process still runs; a zombie does not.
    pub fn alive(self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.started)
    }
}

/// The text is not an owner in its canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not PID-STARTTIME")]
pub struct ParseOwnerError;

impl FromStr for Owner {
    type Err = ParseOwnerError;

    /// Other programs' names can look alike: text that no process could have, or in another form, is refused.
    fn from_str(text: &str) -> Result<Self, ParseOwnerError> {
        let (pid, started) = text.split_once('-').ok_or(ParseOwnerError)?;
        let owner = Self {
            pid: pid.parse().map_err(|_| ParseOwnerError)?,
            started: started.parse().map_err(|_| ParseOwnerError)?,
        };
        let can_be = (1..PID_MAX_LIMIT).contains(&owner.pid) && owner.started >= MIN_START_TICKS;
        // A date has zeros where no number does.
        match can_be && owner.to_string() == text {
            true => Ok(owner),
            false => Err(ParseOwnerError),
        }
    }
}

/// Field 22 of `/proc/PID/stat`; none for a process that is gone or only waits to be reaped.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command's name, which may hold blanks and brackets.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_process_id_is_another_owner() {
        let owner = Owner::current();
        assert!(owner.alive());
        assert_eq!(owner.to_string().parse(), Ok(owner));
        let earlier = Owner {
            started: owner.started - 1,
            ..owner
        };
        assert!(!earlier.alive());
    }

    #[test]
    fn dates_and_versions_are_no_owners() {
        for text in [
            "12",
            "12-",
            "2026-01",
            "2026-10",
            "15-10",
            "20261015-143000",
            "1-2",
            "0-345",
            "+12-345",
            "12-345-6",
            "4194304-345",
        ] {
            assert_eq!(text.parse::<Owner>(), Err(ParseOwnerError), "{text}");
        }
        let owner = Owner {
            pid: 12,
            started: 345,
        };
        assert_eq!("12-345".parse(), Ok(owner));
    }

    #[test]
    fn a_zombie_owns_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while start_time(pid).is_some() {
            assert!(std::time::Instant::now() < until, "`true` does not end");
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
