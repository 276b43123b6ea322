//! Items that the writer has unlinked and readers may still look at.

use std::collections::VecDeque;

/// A queue of unlinked items, each with the epoch that began after it was unlinked.
#[derive(Debug)]
pub struct LimboList<T>(VecDeque<(u64, T)>);

impl<T> LimboList<T> {
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Appends an item that readers of `epoch` and of later ones cannot find. Epochs ascend.
    pub fn push(&mut self, epoch: u64, item: T) {
        debug_assert!(self.0.back().is_none_or(|&(last, _)| last <= epoch));
        self.0.push_back((epoch, item));
    }

    /// Takes the first item out if all readers have reached its epoch; see
    /// [`Domain::reached`](crate::Domain::reached).
    pub fn pop(&mut self, reached: u64) -> Option<T> {
        if self.first_epoch()? > reached {
            return None;
        }
        self.0.pop_front().map(|(_, item)| item)
    }

    /// The epoch of the first item.
    pub fn first_epoch(&self) -> Option<u64> {
        self.0.front().map(|&(epoch, _)| epoch)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of items of epochs later than `epoch`.
    pub fn len_after(&self, epoch: u64) -> usize {
        self.len() - self.0.partition_point(|&(of, _)| of <= epoch)
    }
}

impl<T> Default for LimboList<T> {
    fn default() -> Self {
        Self::new()
    }
}
