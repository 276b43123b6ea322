//! Looks at the egress devices again and again: what can be done with one may change at its other
//! end, and nothing of this namespace changes with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use datapath::Error;

use super::Tables;

/// For so long may copies to a device that stopped taking them be lost uncounted, and may they pass
/// over what was put in their way since.
const PERIOD: Duration = Duration::from_millis(500);
/// Between looks while a stream settles: what userspace sent last has long arrived after two.
const SETTLING: Duration = Duration::from_millis(20);

/// The thread that looks. Dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts to look, in the calling thread's network namespace.
    pub(crate) fn start(tables: &Arc<Tables>) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, tables) = (Arc::clone(&stop), Arc::clone(tables));
        let thread = thread::Builder::new()
            .name("relay-devices".into())
            .spawn(move || {
                loop {
                    let settling = tables.is_settling();
                    thread::park_timeout(if settling { SETTLING } else { PERIOD });
                    if asked.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Err(error) = tables.refresh_devices() {
                        tracing::warn!(%error, "an egress device has changed, its copies have not");
                    }
                }
            })
            .map_err(|error| Error::failed("starting the thread that watches devices", error))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread returns no error, and a panic in it has already been printed.
            let _ = thread.join();
        }
    }
}
