//! The capabilities of this process.

use std::fmt;
use std::fs;
use std::io;

/// The capabilities that packet work needs; the number is the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    SysAdmin = 21,
    SysNice = 23,
    Perfmon = 38,
    Bpf = 39,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        })
    }
}

/// The calling thread's effective capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective(u64);

impl Effective {
    /// # Errors
    /// /proc is not mounted.
    pub fn read() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/thread-self/status")?;
        parse(&status)
            .map(Self)
            .ok_or_else(|| io::Error::other("/proc/thread-self/status has no CapEff"))
    }

    pub fn has(self, capability: Capability) -> bool {
        let holds = |capability| self.0 >> capability as u32 & 1 == 1;
        // CAP_SYS_ADMIN, which they were part of before Linux 5.8, still includes them.
        let older = matches!(capability, Capability::Perfmon | Capability::Bpf);
        holds(capability) || older && holds(Capability::SysAdmin)
    }

    /// The absent capabilities among `wanted`, in that order.
    pub fn missing(self, wanted: &[Capability]) -> Vec<Capability> {
        wanted
            .iter()
            .copied()
            .filter(|&capability| !self.has(capability))
            .collect()
    }
}

fn parse(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_told_apart() {
        let status = "CapPrm:\tffffffffffffffff\nCapEff:\t0000008000001000\n";
        let effective = Effective(parse(status).unwrap());
        assert!(effective.has(Capability::NetAdmin));
        assert!(effective.has(Capability::Bpf));
        assert_eq!(
            effective.missing(&[Capability::Bpf, Capability::NetRaw, Capability::Perfmon]),
            [Capability::NetRaw, Capability::Perfmon]
        );
    }

    #[test]
    fn this_process_has_an_answer() {
        Effective::read().unwrap();
    }
}
