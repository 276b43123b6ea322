//! What time it is, for programs that have only the monotonic clock.

use std::time::{SystemTime, UNIX_EPOCH};

use bpf::Map;
use datapath::Error;

use super::failed;

/// Writes the monotonic clock's distance to the epoch, which changes as the latter is adjusted.
pub(super) fn set(map: &Map<u32, u64>) -> Result<(), Error> {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let epoch = epoch.map_err(|error| Error::failed("reading the clock", error))?;
    let epoch = u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX);
    let offset = epoch.wrapping_sub(sys::clock::monotonic_ns());
    map.set(&0, &offset)
        .map_err(failed("setting the programs' clock"))
}
