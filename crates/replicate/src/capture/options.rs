//! The options of a capture.

use std::num::NonZeroU64;
use std::path::PathBuf;

use super::Pin;
use crate::patterns::Patterns;

/// The options of a capture.
#[derive(Clone, Debug)]
pub struct Options {
    /// The size of the ring for events that wait to be read, in bytes: a power of two of pages.
    pub ring_bytes: u32,
    /// Report where files are written, without the data, and read the data when an epoch is to end.
    pub journal: bool,
    /// On a file system that does not report stores through memory, read mapped files before each
    /// epoch and about every second. Without this option such a file system is rejected.
    pub look: bool,
    /// Selects the names of the tree that are followed.
    pub patterns: Patterns,
    /// Keep a journal of changed files for the next capture after this one has ended.
    pub pin: Option<Pin>,
    /// The most bytes of the tree that are read per second. `None` for no limit.
    pub rate_limit: Option<NonZeroU64>,
    pub hold_back: HoldBackOptions,
}

/// Where changes are held back until their files have been read in a consistent state.
#[derive(Clone, Debug)]
pub struct HoldBackOptions {
    /// The limit in bytes for memory.
    pub memory: usize,
    /// A folder for unnamed files with the content beyond that. Without a folder, epochs wait for
    /// files that exceed the limit.
    pub folder: Option<PathBuf>,
}

impl Default for HoldBackOptions {
    fn default() -> Self {
        Self {
            memory: 128 << 20,
            folder: None,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ring_bytes: 64 << 20,
            journal: false,
            look: false,
            patterns: Patterns::default(),
            pin: None,
            rate_limit: None,
            hold_back: HoldBackOptions::default(),
        }
    }
}
