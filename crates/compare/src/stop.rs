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
                // Programs end with this process; namespaces, links and containers do not.
                print::note(format_args!(
                    "stopped in the middle of a trial; what it left is removed by: sudo lowroad clean"
                ));
                low_level::exit(128 + signal);
            }
            // A trial may take a minute.
            print::note(format_args!(
                "ends after this trial, and keeps what there is; once more, and it ends at once"
            ));
        }
    });
    Ok(stop)
}
