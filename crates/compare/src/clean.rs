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
        "returned: {} devices; removed: {} namespaces, {} processes, {} containers, {} images, {} filters, {} pinned objects, {} folders",
        cleaned.nics,
        cleaned.namespaces,
        cleaned.processes,
        cleaned.containers,
        cleaned.images,
        cleaned.filters,
        cleaned.pins,
        cleaned.folders
    ))?;
    for (engine, why) in &cleaned.silent {
        print::note(format_args!(
            "{engine} was not cleaned ({why}): containers and images of a killed run may remain; start it, or \
             run `sudo lowroad clean` on the machine that runs it"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
