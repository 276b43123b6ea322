//! The memory and the CPU time that an evaluator may take for a model: both grow with the file.

use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Bytes of memory for a model from a file of this size.
pub fn memory(file: u64) -> u64 {
    (2048 * MIB).saturating_add(file.saturating_mul(16))
}

/// CPU time to load a file of this size.
pub fn loading(file: u64) -> Duration {
    Duration::from_secs(20 + file / MIB * 2)
}

/// CPU time to score so many rows.
pub fn scoring(rows: usize) -> Duration {
    let rows = u64::try_from(rows).unwrap_or(u64::MAX);
    Duration::from_secs(60 + rows / 100)
}
