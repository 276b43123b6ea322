//! How far a capture is.

use std::time::Duration;

use super::Rescan;

/// How far the capture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events that were seen.
    pub events: u64,
    /// Bytes of events that wait.
    pub waiting: u64,
    /// Events that found no room. What they said has been read instead, or will be.
    pub dropped: u64,
    /// Files of which something is in doubt.
    pub doubtful: usize,
    /// Files that the last epoch has an earlier state of, because they changed all the time.
    pub stale: usize,
    /// The age of the oldest change that waits until its file has been read as it was at one moment.
    pub held: Option<Duration>,
    /// Bytes that were read from the source instead of seen.
    pub read_back: u64,
    /// Bytes of the distinct pages that had to be read for each epoch.
    pub dirty: u64,
    /// Files of all kinds that the log has.
    pub files: u64,
    /// The last epoch; zero before the first.
    pub epoch: u64,
    /// The last one that has what a program has synced or renamed: what an epoch since then has, the source may lose
    /// with its power.
    pub synced: u64,
    /// What was found of a log that was taken up.
    pub rescan: Option<Rescan>,
}
