//! The interface to the receiver of a capture's entries.

use std::ops::ControlFlow;

use super::Progress;
use crate::record::Entry;

/// Receives the entries of a capture. A closure that takes entries is a listener that never aborts.
pub trait Listener {
    fn take(&mut self, entry: Entry);

    /// Called repeatedly while something is read, which may be a whole tree. Returning `Break`
    /// aborts the capture with [`Error::Ended`](super::Error::Ended).
    fn meanwhile(&mut self, _progress: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(Entry)> Listener for F {
    fn take(&mut self, entry: Entry) {
        self(entry);
    }
}
