//! Why a device does not do what it was asked for.

use datapath::Missing;

/// An error of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Missing(#[from] Missing),
    /// No device of this name.
    #[error("there is no device {name}: {}", choose(.there))]
    NoDevice { name: String, there: Vec<String> },
    /// Its numbers are not those of this machine.
    #[error("{device} is a big-endian device: tables are little-endian, choose another device")]
    Endian { device: String },
    /// It refuses the kernels.
    #[error("{device} cannot build the kernels; its compiler says: {log}")]
    Build { device: String, log: String },
    /// Its memory does not hold this.
    #[error(
        "{device} has no {bytes} bytes of memory in one piece (at most {largest}): use smaller tables, a smaller batch or another device"
    )]
    Memory {
        device: String,
        bytes: usize,
        largest: u64,
    },
    /// It ended a call with an error: out of order, or gone.
    #[error("{device} fails: {call}: {why}; dmesg may show why")]
    Failed {
        device: String,
        call: &'static str,
        why: String,
    },
}

fn choose(there: &[String]) -> String {
    if there.is_empty() {
        return "no device that runs kernels was found".to_owned();
    }
    format!("choose among {}", there.join(", "))
}
