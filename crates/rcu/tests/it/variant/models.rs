//! Small programs of one writer and its readers. Memory is loom's `UnsafeCell`, which panics where one
//! thread writes while another one reads.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use loom::thread;

use super::domain::{Domain, Reader};
use super::limbo::LimboList;
use super::publisher::Publisher;
use super::reclaimer::Reclaimer;

/// Two pieces of memory, one of which readers find.
struct Memory {
    root: AtomicUsize,
    pieces: [UnsafeCell<u64>; 2],
}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            root: AtomicUsize::new(0),
            pieces: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    fn read(&self) {
        let at = self.root.load(Ordering::Acquire);
        self.pieces[at].with(|_| ());
        thread::yield_now();
    }

    /// Writes a piece that no reader finds, and has readers find it instead of the other one.
    fn replace(&self, at: usize) {
        self.pieces[at].with_mut(|_| ());
        self.root.store(at, Ordering::Release);
    }
}

fn read_batches(
    memory: &Arc<Memory>,
    mut reader: Reader,
    batches: usize,
) -> thread::JoinHandle<()> {
    let memory = Arc::clone(memory);
    thread::spawn(move || {
        for _ in 0..batches {
            let _guard = reader.pin();
            memory.read();
        }
    })
}

/// A retired piece is written again only where no reader looks at it.
pub(crate) fn deferred_free() {
    let memory = Memory::new();
    let mut retired = Reclaimer::new();
    let reading = read_batches(&memory, retired.reader(), 2);
    memory.replace(1);
    retired.retire(0);
    retired.reclaim(|piece: usize| memory.pieces[piece].with_mut(|_| ()));
    reading.join().expect("the reader");
}

/// Pieces go around: each is used again while two readers look up.
pub(crate) fn reuse() {
    let memory = Memory::new();
    let mut retired = Reclaimer::new();
    let readers = [(); 2].map(|()| read_batches(&memory, retired.reader(), 1));
    let (mut unused, mut used) = (vec![1], 0);
    for _ in 0..2 {
        if let Some(piece) = unused.pop() {
            memory.replace(piece);
            retired.retire(used);
            used = piece;
        }
        retired.reclaim(|piece| unused.push(piece));
    }
    readers
        .into_iter()
        .for_each(|reader| reader.join().expect("the reader"));
}

/// The same, where the writer needs the memory at once.
pub(crate) fn grace_period_wait() {
    let memory = Memory::new();
    let mut retired = Reclaimer::new();
    let reading = read_batches(&memory, retired.reader(), 2);
    memory.replace(1);
    retired.retire(0);
    retired.wait(|piece: usize| memory.replace(piece));
    reading.join().expect("the reader");
}

/// The same without asking what readers do.
pub(crate) fn free_at_once() {
    let memory = Memory::new();
    let mut retired = Reclaimer::<usize>::new();
    let reading = read_batches(&memory, retired.reader(), 1);
    memory.replace(1);
    retired.retire(0);
    memory.replace(0);
    reading.join().expect("the reader");
}

/// A reader that is made while the writer looks at the readers.
pub(crate) fn late_reader() {
    let memory = Memory::new();
    let mut retired = Reclaimer::new();
    let first = retired.reader();
    let shared = Arc::clone(&memory);
    let reading = thread::spawn(move || {
        let mut second = first.clone();
        drop(first);
        let _guard = second.pin();
        shared.read();
    });
    memory.replace(1);
    retired.retire(0);
    retired.reclaim(|piece: usize| memory.pieces[piece].with_mut(|_| ()));
    reading.join().expect("the reader");
}

/// A reader that pins nothing, and a callback that waits for it.
pub(crate) fn external_reader() {
    external(true);
}

/// The same without the callback.
pub(crate) fn external_reader_unknown() {
    external(false);
}

fn external(known: bool) {
    let memory = Memory::new();
    let running = Arc::new(AtomicBool::new(false));
    let (shared, runs) = (Arc::clone(&memory), Arc::clone(&running));
    let program = thread::spawn(move || {
        runs.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        shared.read();
        runs.store(false, Ordering::Release);
    });
    let mut retired = Reclaimer::new();
    if known {
        retired.set_grace_period(Box::new(move || {
            while running.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }));
    }
    memory.replace(1);
    retired.retire(0);
    retired.wait(|piece: usize| memory.replace(piece));
    program.join().expect("the reader");
}

/// A rule that an update erases, with the time of its death, in a chain that it leaves later. A batch
/// that answers from an earlier update finds it in the chain.
pub(crate) fn deferred_unlink() {
    let death = Arc::new(AtomicU64::new(0));
    let linked = Arc::new(AtomicBool::new(true));
    let mut domain = Domain::new();
    let mut reader = domain.reader();
    let (dies, chain) = (Arc::clone(&death), Arc::clone(&linked));
    let reading = thread::spawn(move || {
        let guard = reader.pin();
        let time = guard.epoch();
        let found = chain.load(Ordering::Acquire);
        assert!(found || time >= 2, "the rule is gone too early");
        let death = dies.load(Ordering::Acquire);
        assert!(time < 2 || death == 2, "the rule is there too long");
    });
    let mut dead = LimboList::new();
    death.store(2, Ordering::Relaxed);
    dead.push(domain.advance(), ());
    if dead.pop(domain.reached()).is_some() {
        linked.store(false, Ordering::Relaxed);
    }
    reading.join().expect("the reader");
}

/// Data that belongs to a version, read with an older snapshot, is noticed.
pub(crate) fn generation_compare() {
    let publisher = Publisher::new(0);
    let (before, data) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut snapshot = publisher.snapshot();
    let (earlier, read) = (Arc::clone(&before), Arc::clone(&data));
    let reading = thread::spawn(move || {
        snapshot.refresh();
        let (version, written) = (*snapshot.get(), earlier.load(Ordering::Relaxed));
        assert!(version == 0 || written == 1, "data of before the version");
        let data = read.load(Ordering::Relaxed);
        if snapshot.is_current() {
            assert!(*snapshot.get() >= data, "data of a later version");
        }
        let (version, data) =
            snapshot.with_current(|version| (*version, read.load(Ordering::Relaxed)));
        assert!(version >= data, "data of a version that has to wait");
    });
    before.store(1, Ordering::Relaxed);
    drop(publisher.publish(1));
    data.store(1, Ordering::Relaxed);
    drop(publisher.update(|version| version + 1));
    data.store(2, Ordering::Relaxed);
    reading.join().expect("the reader");
}

/// A batch pairs an update with a version that contains it, and frees no version.
pub(crate) fn version_of_update() {
    let publisher = Publisher::new(1);
    let mut domain = Domain::new();
    let (mut reader, mut snapshot) = (domain.reader(), publisher.snapshot());
    let reading = thread::spawn(move || {
        snapshot.refresh();
        let guard = reader.pin();
        loop {
            let time = guard.epoch();
            if !snapshot.refresh() {
                assert!(*snapshot.get() >= time, "a version before the update");
                break;
            }
        }
    });
    let old = publisher.publish(2);
    domain.advance();
    reading.join().expect("the reader");
    drop(old);
}
