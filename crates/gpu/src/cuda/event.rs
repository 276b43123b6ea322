//! When a stream came by: what its work before was done by then.

use std::sync::Arc;

use cudarc::driver::result::event;
use cudarc::driver::sys::{CUevent, CUevent_flags::CU_EVENT_DEFAULT, CUstream};

use super::Context;
use crate::Error;

#[derive(Debug)]
pub(super) struct Event {
    context: Arc<Context>,
    handle: CUevent,
}

// SAFETY: a handle, which any thread that enters the context may use.
unsafe impl Send for Event {}
// SAFETY: as above; it is recorded by its only owner, before it is shared.
unsafe impl Sync for Event {}

/// An event that others are timed by.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<Event>);

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        context.enter()?;
        let handle = event::create(CU_EVENT_DEFAULT);
        Ok(Self {
            handle: handle.map_err(context.failed("making an event"))?,
            context: Arc::clone(context),
        })
    }

    /// Once what was asked of the stream before is done.
    ///
    /// # Safety
    /// The stream is there.
    pub(super) unsafe fn record(&self, stream: CUstream) -> Result<(), Error> {
        // SAFETY: the event is there as long as this, the stream by the caller's word.
        let recorded = unsafe { event::record(self.handle, stream) };
        recorded.map_err(self.context.failed("recording an event"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: it was made once and goes once.
            let _ = unsafe { event::destroy(self.handle) };
        }
    }
}

impl Clock {
    /// From now on.
    ///
    /// # Safety
    /// The stream is there, and waited for before the clock is asked.
    pub(super) unsafe fn start(context: &Arc<Context>, stream: CUstream) -> Result<Self, Error> {
        let event = Event::new(context)?;
        // SAFETY: the caller's.
        unsafe { event.record(stream)? };
        Ok(Self(Arc::new(event)))
    }

    /// Nanoseconds until an event that was waited for.
    pub(super) fn until(&self, event: &Event) -> Result<u64, Error> {
        let Event { context, handle } = self.0.as_ref();
        context.enter()?;
        // SAFETY: both are there, and were recorded.
        let ms = unsafe { event::elapsed(*handle, event.handle) };
        let ms = ms.map_err(context.failed("asking how long it took"))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time that is not negative"
        )]
        let ns = (f64::from(ms) * 1e6).round() as u64;
        Ok(ns)
    }
}
