//! A stream: its operations run in order, and concurrently with those of other streams.

use std::sync::Arc;

use cudarc::driver::result::stream;
use cudarc::driver::sys::CUstream;

use super::Context;
use crate::Error;

#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<Context>,
    handle: CUstream,
}

// SAFETY: any thread that enters the context may use it, one after the other.
unsafe impl Send for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        context.enter()?;
        let handle = stream::create(stream::StreamKind::NonBlocking);
        Ok(Self {
            handle: handle.map_err(context.failed("making a stream"))?,
            context: Arc::clone(context),
        })
    }

    pub(super) fn handle(&self) -> CUstream {
        self.handle
    }

    /// Until everything in it is done.
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        self.context.enter()?;
        // SAFETY: it is there for as long as this.
        let waited = unsafe { stream::synchronize(self.handle) };
        waited.map_err(self.context.failed("waiting"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Operations under way still use the host's memory.
        if self.wait().is_ok() {
            // SAFETY: it was made once and goes once.
            let _ = unsafe { stream::destroy(self.handle) };
        }
    }
}
