//! The wall-clock time, for programs that can read only the monotonic clock.

use std::time::{SystemTime, UNIX_EPOCH};

use bpf::Map;
use datapath::Error;

use super::failed;

/// Writes the offset of the monotonic clock from the epoch. It changes when the wall clock is adjusted.
pub(super) fn set(map: &Map<u32, u64>) -> Result<(), Error> {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let epoch = epoch.map_err(|error| Error::failed("reading the clock", error))?;
    let epoch = u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX);
    let offset = epoch.wrapping_sub(sys::clock::monotonic_ns());
    map.set(&0, &offset)
        .map_err(failed("setting the programs' clock"))
}
