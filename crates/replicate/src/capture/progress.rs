//! The progress of a capture.

use std::time::Duration;

use super::Rescan;

/// The progress of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events that were received.
    pub events: u64,
    /// Bytes of events that wait in the ring.
    pub waiting: u64,
    /// Events that did not fit into the ring. The files concerned are read back instead.
    pub dropped: u64,
    /// Files with a part in doubt.
    pub doubtful: usize,
    /// Files that the last epoch has in an earlier state, because they changed all the time.
    pub stale: usize,
    /// The age of the oldest change that is held back until its file has been read in a consistent
    /// state.
    pub held: Option<Duration>,
    /// Bytes that were read back from the source instead of captured at the write.
    pub read_back: u64,
    /// Bytes of the distinct pages that had to be read back, summed up over epochs.
    pub dirty: u64,
    /// Files of all kinds in the log.
    pub files: u64,
    /// The last epoch, or zero before the first.
    pub epoch: u64,
    /// The last epoch that contains what a program has synced or renamed. The source may lose later
    /// epochs in a power failure.
    pub synced: u64,
    /// The results of comparing the tree with a continued log.
    pub rescan: Option<Rescan>,
}
