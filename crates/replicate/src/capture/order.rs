//! Puts events in the order of their numbers, and detects missing ones.

use std::collections::{BTreeMap, VecDeque};

use super::event::{Event, What};

/// The limit in bytes of the written content that waiting events keep. Beyond it only the offset
/// and length are kept, and the range is read back. Events wait while a tree is read, and its
/// programs continue to write.
const MAX_RETAINED_BYTES: usize = 64 << 20;

/// Events that wait for an earlier one.
#[derive(Debug)]
pub(super) struct Order {
    /// The number that is due among the events that did not arrive in order.
    next: u64,
    /// Events that arrived in order.
    due: VecDeque<Event>,
    waiting: BTreeMap<u64, Event>,
    /// How many numbers were skipped.
    skipped: u64,
    /// Numbers were skipped since the last query.
    gap: bool,
    /// Bytes of written content in events that have not been taken.
    kept: usize,
}

/// An event that arrived after its number was skipped, so that later events may have been processed
/// before it.
#[derive(Debug)]
pub(super) struct LateEvent(pub(super) Box<Event>);

impl Order {
    pub(super) fn new(first: u64) -> Self {
        Self {
            next: first,
            due: VecDeque::new(),
            waiting: BTreeMap::new(),
            skipped: 0,
            gap: false,
            kept: 0,
        }
    }

    pub(super) fn push(&mut self, mut event: Event) -> Result<(), LateEvent> {
        if event.number < self.next {
            self.skipped = self.skipped.saturating_sub(1);
            return Err(LateEvent(Box::new(event)));
        }
        if let What::Data { offset, bytes } = &event.what {
            let (offset, length) = (*offset, bytes.len());
            if self.kept + length > MAX_RETAINED_BYTES {
                event.what = What::Written {
                    offset,
                    length: length as u64,
                };
            } else {
                self.kept += length;
            }
        }
        if event.number == self.next {
            self.next += 1;
            self.due.push_back(event);
        } else {
            self.waiting.insert(event.number, event);
        }
        Ok(())
    }

    /// Returns the due event if it has arrived and its number is below `end`.
    pub(super) fn pop(&mut self, end: u64) -> Option<Event> {
        let first = self.due.front().map_or(self.next, |event| event.number);
        if first >= end {
            return None;
        }
        let event = self.due.pop_front().or_else(|| {
            let event = self.waiting.remove(&self.next)?;
            self.next += 1;
            Some(event)
        })?;
        if let What::Data { bytes, .. } = &event.what {
            self.kept -= bytes.len();
        }
        Some(event)
    }

    /// Skips the numbers before the first waiting event if as many events are known to be lost as
    /// are missing. If one of them arrives after all, it becomes a [`LateEvent`].
    pub(super) fn skip(&mut self, lost: u64) {
        let (Some((first, _)), Some((last, _))) = (
            self.waiting.first_key_value(),
            self.waiting.last_key_value(),
        ) else {
            return;
        };
        // The first event may be due already, and only held by the limit of `pop`. Nothing is
        // missing before it.
        if *first == self.next {
            return;
        }
        let missing = last + 1 - self.next - self.waiting.len() as u64;
        if self.skipped + missing <= lost {
            self.skipped += first - self.next;
            self.next = *first;
            self.gap = true;
        }
    }

    /// Whether numbers were skipped since the last call. All events before them have been taken.
    pub(super) fn gap(&mut self) -> bool {
        std::mem::take(&mut self.gap)
    }

    /// Whether every number below `end` has arrived or is known to be lost. If so, they are
    /// finished with.
    pub(super) fn reached(&mut self, end: u64, lost: u64) -> bool {
        if let Some(event) = self.due.front() {
            return event.number >= end;
        }
        if self.next >= end {
            return true;
        }
        let missing = end - self.next;
        if self.waiting.is_empty() && self.skipped + missing <= lost {
            self.skipped += missing;
            self.next = end;
            self.gap = true;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Flags;
    use super::*;
    use crate::record::File;

    fn event(number: u64) -> Event {
        Event {
            number,
            file: File {
                inode: 2,
                generation: 0,
            },
            flags: Flags::default(),
            hooks: 0,
            what: What::Sync,
        }
    }

    #[test]
    fn an_event_that_has_to_wait_is_behind_a_gap_once() {
        let mut order = Order::new(0);
        order.push(event(2)).unwrap();
        order.skip(2);
        assert!(order.gap());
        // A readback stops here: the event is due, and nothing before it is missing.
        assert_eq!(order.pop(2), None);
        order.skip(2);
        assert!(!order.gap());
        assert_eq!(order.pop(3).map(|event| event.number), Some(2));
    }
}
