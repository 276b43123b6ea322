//! A tree that is followed into a log.

use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use replicate::capture::{Capture, INTERVAL, Options};
use replicate::log::{self, Writer};
use replicate::record::{Entry, Part};

/// Longer than a test takes on a shared machine.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Recording {
    capture: Capture,
    log: Writer,
}

impl Recording {
    pub(crate) fn start(tree: &Path, log: &Path) -> Self {
        let options = Options {
            look: true,
            ..Options::default()
        };
        Self {
            capture: Capture::start(tree, options).unwrap(),
            log: Writer::open(log, log::Options::default()).unwrap(),
        }
    }

    /// The last epoch that the log has.
    pub(crate) fn epoch(&self) -> u64 {
        self.log.epoch()
    }

    pub(crate) fn suspect(&mut self, path: &str, parts: &[Part]) {
        self.capture.suspect(Path::new(path), parts);
    }

    /// Records while `work` is done.
    pub(crate) fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                let Self { capture, log } = self;
                capture.poll(&mut |entry| append(log, entry)).unwrap();
                thread::sleep(INTERVAL);
            }
            let done = working.join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Waits until the log's last epoch has everything that has happened.
    pub(crate) fn catch_up(&mut self) {
        let Self { capture, log } = self;
        let mut take = |entry| append(log, entry);
        let caught = capture.catch_up(LIMIT, &mut take).unwrap();
        assert!(caught, "no epoch: {:?}", capture.progress());
    }
}

fn append(log: &mut Writer, entry: Entry) {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    log.append(u64::try_from(since.as_nanos()).unwrap(), entry)
        .unwrap();
}
