//! `lowroad clean`: removes what a killed run left behind.

use std::process::ExitCode;

use anyhow::Result;

use crate::print;

pub(crate) fn run() -> Result<ExitCode> {
    crate::need_root(
        "clean",
        "removes network namespaces and BPF programs that a killed run left behind",
    )?;
    let cleaned = testbed::clean()?;
    print::line(format_args!(
        "removed: {} namespaces, {} processes, {} containers, {} filters, {} pinned objects, {} folders",
        cleaned.namespaces,
        cleaned.processes,
        cleaned.cgroups,
        cleaned.filters,
        cleaned.pins,
        cleaned.folders
    ))?;
    Ok(ExitCode::SUCCESS)
}
