//! Who is told what a capture finds.

use std::ops::ControlFlow;

use super::Progress;
use crate::record::Entry;

/// What a capture says, as it says it. A closure that takes entries is one that lets it go on.
pub trait Listener {
    fn take(&mut self, entry: Entry);

    /// Asked again and again while something is read, which may be a whole tree: a capture that is to break off
    /// ends with [`Error::Ended`](super::Error::Ended).
    fn meanwhile(&mut self, _progress: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(Entry)> Listener for F {
    fn take(&mut self, entry: Entry) {
        self(entry);
    }
}
