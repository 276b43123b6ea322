//! Ctrl-C: the first ends the run after the current trial, the second ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::print;

/// A flag that SIGINT and SIGTERM set; a second signal exits with the shell's code for it.
pub(crate) fn catch() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if stopped.swap(true, Ordering::Relaxed) {
                // Programs end with this process; namespaces, links and containers do not, nor does what the set-up of an
                // external program did to this machine.
                print::note(format_args!(
                    "stopped in the middle of a trial; remove what it left with: sudo lowroad clean"
                ));
                experiment::tear_down_programs();
                low_level::exit(128 + signal);
            }
            // A trial may take a minute.
            print::note(format_args!(
                "stopping after this trial and keeping the results so far; a second Ctrl-C stops at once"
            ));
        }
    });
    Ok(stop)
}
