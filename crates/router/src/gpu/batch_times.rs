//! The times of a batch by the device's own clock.

use gpu::{Memory, Times};

use super::launch::Input;
use crate::engine::Function;

/// The smallest memory access of a device, in bytes.
const SECTOR: usize = 32;

/// The times of one stream's part of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchTimes {
    pub times: Times,
    /// Minimum number of bytes that kernels read and write in device memory: input and output if they are
    /// there, and 32 bytes for each route lookup. Reads of rules depend on the packets and are not included.
    pub moved: usize,
}

pub(super) fn bytes_moved(function: Function, memory: Memory, input: &Input, back: usize) -> usize {
    let batch = match memory {
        Memory::Pageable | Memory::Pinned => input.bytes + back,
        Memory::Mapped => 0,
    };
    let lookups = if function.routes() {
        input.keys[0] + input.keys[1]
    } else {
        0
    };
    batch + SECTOR * lookups
}
