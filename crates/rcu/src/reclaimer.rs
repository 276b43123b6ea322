//! A domain whose writer gets unlinked pieces back, also from readers that pin no epoch and can only
//! be waited for.

use std::fmt::{self, Debug};

use super::domain::{Domain, Reader};
use super::limbo::LimboList;
use super::sync::{Ordering, fence, yield_now};

/// Pieces that are worth a grace period, which may take milliseconds.
pub(super) const GRACE_BATCH: usize = 1 << 14;

/// Returns when every reader that started before the call has ended, of those that pin no epoch.
pub type GracePeriod = Box<dyn FnMut() + Send + Sync>;

/// The writer's side.
pub struct Reclaimer<T> {
    domain: Domain,
    limbo: LimboList<T>,
    grace_period: Option<GracePeriod>,
    /// Pieces of this epoch and earlier ones are out of reach of the readers that pin nothing.
    grace_epoch: u64,
}

impl<T> Reclaimer<T> {
    pub fn new() -> Self {
        Self {
            domain: Domain::new(),
            limbo: LimboList::new(),
            grace_period: None,
            grace_epoch: u64::MAX,
        }
    }

    /// Has pieces wait for `grace_period` as well, those retired before included.
    pub fn set_grace_period(&mut self, grace_period: GracePeriod) {
        self.grace_period = Some(grace_period);
        self.grace_epoch = 0;
    }

    /// A reader that pins epochs.
    pub fn reader(&self) -> Reader {
        self.domain.reader()
    }

    /// Takes a piece that the caller has unlinked: no reader that starts now can find it.
    pub fn retire(&mut self, piece: T) {
        let epoch = self.domain.advance();
        self.limbo.push(epoch, piece);
    }

    /// The number of pieces not yet given back.
    pub fn pending(&self) -> usize {
        self.limbo.len()
    }

    /// Gives back the pieces that no reader can look at any more. It waits for none, but for a grace
    /// period where thousands of pieces need one.
    pub fn reclaim(&mut self, mut free: impl FnMut(T)) {
        if self.limbo.len_after(self.grace_epoch) >= GRACE_BATCH {
            self.wait_grace_period();
        }
        self.free(&mut free);
    }

    /// Gives back all pieces, after waiting for the readers that may look at them. These are pinned
    /// for one batch, so the wait takes microseconds, or a grace period.
    pub fn wait(&mut self, mut free: impl FnMut(T)) {
        self.wait_grace_period();
        self.free(&mut free);
        while !self.limbo.is_empty() {
            yield_now();
            self.free(&mut free);
        }
    }

    fn free(&mut self, free: &mut impl FnMut(T)) {
        // Each reader's slot may be a cache miss: look at them only for pieces that would be free.
        let first = self.limbo.first_epoch();
        if first.is_none_or(|first| first > self.grace_epoch) {
            return;
        }
        let reached = self.domain.reached().min(self.grace_epoch);
        while let Some(piece) = self.limbo.pop(reached) {
            free(piece);
        }
    }

    fn wait_grace_period(&mut self) {
        if let Some(wait) = &mut self.grace_period {
            // Readers that start after the call see all that was unlinked before.
            fence(Ordering::SeqCst);
            wait();
            self.grace_epoch = self.domain.epoch();
        }
    }
}

impl<T> Default for Reclaimer<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Debug> Debug for Reclaimer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaimer")
            .field("domain", &self.domain)
            .field("limbo", &self.limbo)
            .field("grace_epoch", &self.grace_epoch)
            .finish_non_exhaustive()
    }
}
