//! The two ends of the single-producer single-consumer rings that AF_XDP shares with the kernel.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use sys::mmap::Region;

/// Where the parts of a mapped ring are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) entries: usize,
    pub(crate) size: u32,
}

impl Layout {
    pub(crate) fn new(offsets: libc::xdp_ring_offset, size: u32) -> Self {
        let offset = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Self {
            producer: offset(offsets.producer),
            consumer: offset(offsets.consumer),
            flags: offset(offsets.flags),
            entries: offset(offsets.desc),
            size,
        }
    }
}

/// A mapped ring of `T`.
struct Shared<T> {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    flags: *const AtomicU32,
    entries: *mut T,
    size: u32,
    /// Keeps the pointers above valid.
    _region: Arc<Region>,
}

// SAFETY: the pointers lead into the region held beside them; counters are atomic, and an entry is
// touched only by the side that the counters say owns it.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    fn new(region: Arc<Region>, layout: Layout) -> Self {
        let end = layout.entries + layout.size as usize * size_of::<T>();
        let counters = layout.producer.max(layout.consumer).max(layout.flags);
        assert!(layout.size.is_power_of_two() && end.max(counters + 4) <= region.len());
        let base = region.as_ptr();
        // SAFETY: all offsets, with what lies at them, are inside the region; the kernel aligns
        // counters to cache lines and entries to their size.
        let at = |offset: usize| unsafe { base.add(offset) };
        Self {
            producer: at(layout.producer).cast(),
            consumer: at(layout.consumer).cast(),
            flags: at(layout.flags).cast(),
            entries: at(layout.entries).cast(),
            size: layout.size,
            _region: region,
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: valid as long as the region, and only ever accessed atomically.
        unsafe { &*self.producer }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { &*self.consumer }
    }

    fn entry(&self, counter: u32) -> *mut T {
        // SAFETY: the mask keeps the index below `size`, which is inside the region.
        unsafe { self.entries.add((counter & (self.size - 1)) as usize) }
    }

    /// Whether the kernel sleeps and must be called. The fence orders the counter published before
    /// against the flag: the kernel sets the flag and then looks at the counter once more.
    fn needs_wakeup(&self) -> bool {
        fence(Ordering::SeqCst);
        // SAFETY: as for `producer`.
        let flags = unsafe { &*self.flags };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The end that writes: fill and transmit rings.
pub(crate) struct Producer<T> {
    shared: Shared<T>,
    produced: u32,
    /// The other side's counter when it was last read.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn new(region: Arc<Region>, layout: Layout) -> Self {
        let shared = Shared::new(region, layout);
        Self {
            produced: shared.producer().load(Ordering::Relaxed),
            consumed: shared.consumer().load(Ordering::Acquire),
            shared,
        }
    }

    /// How many of `wanted` entries can be written now.
    pub(crate) fn room(&mut self, wanted: usize) -> usize {
        if self.free() < wanted {
            self.consumed = self.shared.consumer().load(Ordering::Acquire);
        }
        self.free().min(wanted)
    }

    /// Writes entries and publishes them together.
    ///
    /// # Panics
    /// When there are more than [`Self::room`] allowed.
    pub(crate) fn publish(&mut self, entries: impl Iterator<Item = T>) {
        for entry in entries {
            assert!(self.free() > 0, "the ring is full");
            // SAFETY: the entry is free, so the other side does not look at it before the counter
            // is published below.
            unsafe { self.shared.entry(self.produced).write(entry) };
            self.produced = self.produced.wrapping_add(1);
        }
        self.shared
            .producer()
            .store(self.produced, Ordering::Release);
    }

    /// Entries published that the other side has not taken.
    pub(crate) fn pending(&mut self) -> usize {
        self.consumed = self.shared.consumer().load(Ordering::Acquire);
        self.produced.wrapping_sub(self.consumed) as usize
    }

    /// Takes back the entries that the other side has not taken, which is gone.
    pub(crate) fn take_back(&mut self, mut take: impl FnMut(T)) {
        let mut counter = self.shared.consumer().load(Ordering::Acquire);
        while counter != self.produced {
            // SAFETY: this side wrote the entry, and the other side takes nothing any more.
            take(unsafe { self.shared.entry(counter).read() });
            counter = counter.wrapping_add(1);
        }
        self.consumed = self.produced;
        let consumer = self.shared.consumer();
        consumer.store(self.produced, Ordering::Release);
    }

    pub(crate) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }

    fn free(&self) -> usize {
        (self.shared.size - self.produced.wrapping_sub(self.consumed)) as usize
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("size", &self.shared.size)
            .field("produced", &self.produced)
            .finish_non_exhaustive()
    }
}

/// The end that reads: receive and completion rings.
pub(crate) struct Consumer<T> {
    shared: Shared<T>,
    consumed: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn new(region: Arc<Region>, layout: Layout) -> Self {
        let shared = Shared::new(region, layout);
        Self {
            consumed: shared.consumer().load(Ordering::Relaxed),
            shared,
        }
    }

    /// Hands at most `limit` entries to `take` and frees them together; returns how many.
    pub(crate) fn take(&mut self, limit: usize, mut take: impl FnMut(T)) -> usize {
        let produced = self.shared.producer().load(Ordering::Acquire);
        let ready = produced.wrapping_sub(self.consumed) as usize;
        let count = ready.min(limit);
        for _ in 0..count {
            // SAFETY: the producer published this entry and does not touch it before the counter
            // below frees it.
            take(unsafe { self.shared.entry(self.consumed).read() });
            self.consumed = self.consumed.wrapping_add(1);
        }
        if count > 0 {
            self.shared
                .consumer()
                .store(self.consumed, Ordering::Release);
        }
        count
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("size", &self.shared.size)
            .field("consumed", &self.consumed)
            .finish_non_exhaustive()
    }
}

/// Maps the ring of `T` that a socket offers at `page_offset`.
pub(crate) fn map<T>(
    socket: BorrowedFd<'_>,
    layout: Layout,
    page_offset: u64,
) -> io::Result<Arc<Region>> {
    let len = layout.entries + layout.size as usize * size_of::<T>();
    Region::shared(socket, len, page_offset).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use sys::mmap::Pages;

    use super::*;

    /// Both ends of one ring of `size` words, its counters about to wrap around.
    fn pair(size: u32) -> (Producer<u64>, Consumer<u64>) {
        let region = Arc::new(Region::anonymous(4096, Pages::Ordinary).unwrap());
        let layout = Layout {
            producer: 0,
            consumer: 64,
            flags: 128,
            entries: 192,
            size,
        };
        let shared = Shared::<u64>::new(Arc::clone(&region), layout);
        shared.producer().store(u32::MAX - 2, Ordering::Relaxed);
        shared.consumer().store(u32::MAX - 2, Ordering::Relaxed);
        (
            Producer::new(Arc::clone(&region), layout),
            Consumer::new(region, layout),
        )
    }

    #[test]
    fn a_full_ring_takes_no_more_until_it_is_read() {
        let (mut producer, mut consumer) = pair(4);
        assert_eq!(producer.room(10), 4);
        producer.publish(0..4);
        assert_eq!((producer.room(1), producer.pending()), (0, 4));
        let mut got = Vec::new();
        assert_eq!(consumer.take(3, |entry| got.push(entry)), 3);
        assert_eq!((got, producer.room(10)), (vec![0, 1, 2], 3));
    }

    #[test]
    fn entries_that_were_not_taken_are_taken_back() {
        let (mut producer, mut consumer) = pair(4);
        producer.publish(0..4);
        consumer.take(1, |_| {});
        let mut back = Vec::new();
        producer.take_back(|entry| back.push(entry));
        assert_eq!((back, producer.pending()), (vec![1, 2, 3], 0));
        producer.take_back(|entry| panic!("{entry} was taken back before"));
    }

    #[test]
    fn entries_cross_threads_in_order_and_once() {
        const TOTAL: u64 = 50_000;
        let (mut producer, mut consumer) = pair(64);
        let writer = thread::spawn(move || {
            let mut next = 0;
            while next < TOTAL {
                let wanted = usize::try_from(TOTAL - next).unwrap().min(17);
                let room = producer.room(wanted) as u64;
                producer.publish(next..next + room);
                next += room;
            }
        });
        let mut expected = 0;
        while expected < TOTAL {
            consumer.take(23, |entry| {
                assert_eq!(entry, expected);
                expected += 1;
            });
        }
        writer.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "full")]
    fn overfilling_is_refused() {
        pair(4).0.publish(0..5);
    }
}
