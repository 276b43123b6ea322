//! Who is told what a capture finds.

use std::ops::ControlFlow;

use super::{Capture, Error, Progress};
use crate::record::Entry;

/// What a capture says, as it says it. A closure that takes entries is one that lets it go on.
pub trait Listener {
    fn take(&mut self, entry: Entry);

    /// Asked again and again while something is read, which may be a whole tree: a capture that is to break off
    /// ends with [`Error::Ended`].
    fn meanwhile(&mut self, _progress: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(Entry)> Listener for F {
    fn take(&mut self, entry: Entry) {
        self(entry);
    }
}

impl Capture {
    pub(super) fn ask(&self, listener: &mut dyn Listener) -> Result<(), Error> {
        match listener.meanwhile(&self.progress()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Ended),
        }
    }
}
