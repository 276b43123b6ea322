//! Guests that have no CPU time for a while.

use crate::error::Error;
use crate::vm::guest::Guest;

/// Guests that are paused until this is dropped.
#[derive(Debug)]
pub struct PauseGuard<'a>(Vec<&'a Guest>);

impl<'a> PauseGuard<'a> {
    pub(crate) fn new(guests: Vec<&'a Guest>) -> Result<Self, Error> {
        // Guests that were paused before an error resume when this is dropped.
        let guard = Self(guests);
        guard.0.iter().try_for_each(|guest| guest.pause())?;
        Ok(guard)
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        for guest in &self.0 {
            // A guest that cannot be resumed has ended, which its bed finds out.
            if let Err(error) = guest.resume() {
                tracing::warn!("{error}");
            }
        }
    }
}
