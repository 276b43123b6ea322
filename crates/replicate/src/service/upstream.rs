//! What a copy of a log knows of its source. It is stored beside the copy, to determine later what
//! the copy lacks.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::capture::now_ns;
use super::receive::ReceiveProgress;
use crate::folder::Folder;

/// The name of the file in the folder of a copy.
const FILE: &str = "upstream";
const TEMPORARY: &str = "upstream.tmp";
/// The largest size of the file, in bytes.
const MAX_SIZE: u64 = 16 << 10;
const INTERVAL: Duration = Duration::from_secs(1);
/// The interval of writes while the source has not reported everything.
const SOON: Duration = Duration::from_millis(50);

/// The head of a source when the copy last heard of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// Where the copy was received from.
    pub from: String,
    /// The source's last record and epoch. A stream does not report them.
    pub record: Option<u64>,
    pub epoch: Option<u64>,
    /// Messages of a stream that the copy lacked.
    pub pending: Option<u64>,
    /// The time of the report, in nanoseconds since 1970.
    pub heard_ns: u64,
}

impl Upstream {
    /// Returns `None` for a log that was not received, or an incomplete file.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn read(log: &Path) -> io::Result<Option<Self>> {
        let folder = Folder::open(log)?;
        let file = match folder.file(FILE, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = String::new();
        file.take(MAX_SIZE).read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text).ok())
    }

    fn write(&self, log: &Path) -> io::Result<()> {
        let folder = Folder::open(log)?;
        let mut file = folder.replace(TEMPORARY)?;
        serde_json::to_writer(&mut file, self)?;
        file.flush()?;
        folder.rename(TEMPORARY, FILE)
    }
}

/// Writes the file at intervals.
#[derive(Debug, Default)]
pub(super) struct Noter {
    written: Option<Instant>,
    /// It has everything that the source reports.
    complete: bool,
    /// When the source was last connected.
    heard_ns: Option<u64>,
}

impl Noter {
    /// If the file cannot be written, only the later report of what the copy lacks is affected.
    pub(super) fn note(&mut self, log: &Path, from: &str, received: &ReceiveProgress) {
        if !received.connected() {
            return;
        }
        self.heard_ns = Some(now_ns());
        let interval = if self.complete { INTERVAL } else { SOON };
        if self.written.is_none_or(|at| at.elapsed() >= interval) {
            self.write(log, from, received);
        }
    }

    /// As [`Self::note`], at the end.
    pub(super) fn write(&mut self, log: &Path, from: &str, received: &ReceiveProgress) {
        let Some(heard_ns) = self.heard_ns else {
            return;
        };
        let mut upstream = Upstream {
            from: from.to_owned(),
            record: None,
            epoch: None,
            pending: None,
            heard_ns,
        };
        match received {
            ReceiveProgress::Tcp(progress, _) if progress.tip.number == 0 => return,
            ReceiveProgress::Tcp(progress, _) => {
                upstream.record = Some(progress.tip.number);
                upstream.epoch = (progress.tip.epoch > 0).then_some(progress.tip.epoch);
                self.complete = upstream.epoch.is_some();
            }
            ReceiveProgress::Nats(progress) => {
                upstream.pending = Some(progress.pending);
                self.complete = true;
            }
        }
        self.written = Some(Instant::now());
        if let Err(error) = upstream.write(log) {
            tracing::debug!("{}: {FILE}: {error}", log.display());
        }
    }
}
