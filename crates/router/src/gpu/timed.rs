//! What of a batch's way is timed by the device itself.

use gpu::{Memory, Times};

use super::launch::Input;
use crate::engine::Function;

/// What a device reads of its memory at least.
const SECTOR: usize = 32;

/// A part of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    pub times: Times,
    /// Bytes that kernels read and write in the device's memory at the least: what was sent and what goes
    /// back, where these lie there, and 32 bytes for each lookup of a route. What they read of rules depends
    /// on the packets, and is not in it.
    pub moved: usize,
}

pub(super) fn moved(function: Function, memory: Memory, input: &Input, back: usize) -> usize {
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
