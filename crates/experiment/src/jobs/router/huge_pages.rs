//! Reserved huge pages, which DPDK keeps its tables in: as many as its peers need while an experiment
//! runs, and afterwards as many as there were.

use std::fs;

use anyhow::{Context, Result};

const NR_HUGEPAGES_PATH: &str = "/proc/sys/vm/nr_hugepages";
/// For the tables of all peers together.
const TARGET_PAGES: u64 = 1800;
/// Memory that is left to everything else, in MiB.
const SPARE_MIB: u64 = 4096;

#[derive(Debug)]
pub(super) struct HugePages {
    before: u64,
}

impl HugePages {
    /// Reserves them where there is memory for them; without them peers take ordinary pages.
    pub(super) fn reserve() -> Result<Option<Self>> {
        if free("Hugepagesize:")? != 2048 {
            return Ok(None);
        }
        let before = reserved()?;
        let more = TARGET_PAGES.saturating_sub(free("HugePages_Free:")?);
        let available_mib = free("MemAvailable:")? / 1024;
        if available_mib < 2 * more + SPARE_MIB {
            return Ok(None);
        }
        let guard = Self { before };
        fs::write(NR_HUGEPAGES_PATH, (before + more).to_string()).context(NR_HUGEPAGES_PATH)?;
        Ok((free("HugePages_Free:")? >= TARGET_PAGES).then_some(guard))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(NR_HUGEPAGES_PATH, self.before.to_string()) {
            tracing::warn!("{NR_HUGEPAGES_PATH} stays changed: {error}");
        }
    }
}

fn reserved() -> Result<u64> {
    let text = fs::read_to_string(NR_HUGEPAGES_PATH).context(NR_HUGEPAGES_PATH)?;
    text.trim().parse().context(NR_HUGEPAGES_PATH)
}

/// A number of /proc/meminfo.
fn free(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("/proc/meminfo has no {name}"))
}
