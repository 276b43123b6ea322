//! How a tree is followed.

use std::num::NonZeroU64;
use std::path::PathBuf;

use super::Pin;
use crate::patterns::Patterns;

/// How a tree is followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Room for events that wait to be read: a power of two of pages, in bytes.
    pub ring_bytes: u32,
    /// Tell where files are written, not what, and read that when an epoch is to end.
    pub journal: bool,
    /// Where the file system tells nothing of stores through memory, files that are mapped are read
    /// before each epoch, and each second. Such a file system is refused otherwise.
    pub look: bool,
    /// Which names of the tree are followed.
    pub patterns: Patterns,
    /// Keep a journal of what is touched when this capture is gone, for the next one.
    pub pin: Option<Pin>,
    /// So many bytes of the tree are read in a second at most; none for as many as there are.
    pub rate_limit: Option<NonZeroU64>,
    pub hold_back: HoldBackOptions,
}

/// Where changes are kept of files that were not read as they were at one moment yet.
#[derive(Clone, Debug)]
pub struct HoldBackOptions {
    /// So many bytes are kept in memory.
    pub memory: usize,
    /// More are kept in files without a name in this folder. Without one, epochs wait for files of which there is more.
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
