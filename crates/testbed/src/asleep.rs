//! Guests put to sleep while nothing is asked of them.

use crate::{Error, Guest};

/// Guests that sleep until this is dropped.
#[derive(Debug)]
pub struct Asleep<'a>(Vec<&'a Guest>);

impl<'a> Asleep<'a> {
    pub(crate) fn all(guests: Vec<&'a Guest>) -> Result<Self, Error> {
        let asleep = Self(guests);
        asleep.0.iter().try_for_each(|guest| guest.sleep())?;
        Ok(asleep)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        for guest in &self.0 {
            // One that cannot be woken has ended, which its bed finds out.
            if let Err(error) = guest.wake() {
                tracing::warn!("{error}");
            }
        }
    }
}
