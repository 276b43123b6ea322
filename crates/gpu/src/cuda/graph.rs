//! A batch that is recorded once, and then launched as often as wanted by one call.

use std::sync::Arc;

use cudarc::driver::result::{graph, stream};
use cudarc::driver::sys::{
    CUgraphExec, CUgraphInstantiate_flags, CUstream,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
};

use super::Context;
use crate::Error;

/// Launched by the lane alone that it was recorded in.
#[derive(Debug)]
pub(crate) struct Graph {
    context: Arc<Context>,
    handle: CUgraphExec,
}

// SAFETY: any thread that enters the context may use it, one after the other.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` enqueues to the stream, without executing it. Other threads are not affected.
    pub(super) fn record(
        handle: CUstream,
        context: &Arc<Context>,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Self, Error> {
        // SAFETY: the stream is there, nothing is in it, and this thread ends what it begins.
        let begun = unsafe { stream::begin_capture(handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) };
        begun.map_err(context.failed("beginning to record"))?;
        let asked = work();
        // SAFETY: it was begun by this thread.
        let recorded = unsafe { stream::end_capture(handle) };
        asked?;
        let recorded = recorded.map_err(context.failed("recording"))?;
        // SAFETY: a graph that was just made.
        let made = unsafe { graph::instantiate(recorded, no_flags()) };
        // SAFETY: as above; what was made of it needs it no more.
        let _ = unsafe { graph::destroy(recorded) };
        Ok(Self {
            context: Arc::clone(context),
            handle: made.map_err(context.failed("making a graph"))?,
        })
    }

    /// Does in the stream what was recorded.
    ///
    /// # Safety
    /// The stream is there, as is what it was recorded with, until the stream has done it.
    pub(super) unsafe fn launch(&self, stream: CUstream) -> Result<(), Error> {
        // SAFETY: the graph is there; the rest is the caller's word.
        let launched = unsafe { graph::launch(self.handle, stream) };
        launched.map_err(self.context.failed("launching a graph"))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: it was made once and goes once; the driver keeps what is on its way.
            let _ = unsafe { graph::exec_destroy(self.handle) };
        }
    }
}

fn no_flags() -> CUgraphInstantiate_flags {
    CUgraphInstantiate_flags(0)
}
