//! How far a capture is.

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
    /// Bytes that were read from the source instead of seen.
    pub read_back: u64,
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
