use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reclaimer::GRACE_BATCH;
use super::{Domain, Publisher, Reclaimer};

#[test]
fn reached_is_oldest_pinned_epoch() {
    let mut domain = Domain::new();
    let (mut one, mut other) = (domain.reader(), domain.reader());
    (1..5).for_each(|_| _ = domain.advance());
    let early = one.pin();
    assert_eq!(early.epoch(), 5);
    (5..9).for_each(|_| _ = domain.advance());
    assert_eq!((early.epoch(), domain.reached()), (9, 5));
    let late = other.pin();
    drop(early);
    assert_eq!((domain.advance(), domain.reached()), (10, 9));
    drop(late);
    assert_eq!(domain.reached(), 10);
}

#[test]
fn pinned_piece_is_kept() {
    let mut pieces = Reclaimer::new();
    let mut early = pieces.reader();
    let pinned = early.pin();
    pieces.retire(1);
    let mut late = pieces.reader();
    let later = late.pin();
    let mut freed = Vec::new();
    pieces.reclaim(|piece| freed.push(piece));
    assert_eq!((freed.len(), pieces.pending()), (0, 1));
    drop(pinned);
    pieces.reclaim(|piece| freed.push(piece));
    assert_eq!(freed, [1], "the later reader cannot have seen it");
    drop(later);
}

#[test]
fn grace_period_waits_for_many() {
    let periods = Arc::new(AtomicU64::new(0));
    let mut pieces = Reclaimer::new();
    let counted = Arc::clone(&periods);
    pieces.set_grace_period(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let freed = Cell::new(0);
    let free = |()| freed.set(freed.get() + 1);
    let state = || (freed.get(), periods.load(Ordering::Relaxed));
    for _ in 1..GRACE_BATCH {
        pieces.retire(());
        pieces.reclaim(free);
    }
    assert_eq!(state(), (0, 0));
    pieces.retire(());
    pieces.reclaim(free);
    assert_eq!(state(), (GRACE_BATCH, 1));
    pieces.retire(());
    pieces.wait(free);
    assert_eq!(state(), (GRACE_BATCH + 1, 2));
}

#[test]
fn grace_period_keeps_pinned_pieces() {
    let mut pieces = Reclaimer::new();
    pieces.set_grace_period(Box::new(|| ()));
    let mut reader = pieces.reader();
    let pinned = reader.pin();
    (0..GRACE_BATCH).for_each(|piece| pieces.retire(piece));
    pieces.reclaim(|_| panic!("the reader may still look at it"));
    drop(pinned);
    pieces.reclaim(|_| ());
    assert_eq!(pieces.pending(), 0);
}

#[test]
fn dropped_readers_are_forgotten() {
    let domain = Domain::new();
    for _ in 0..10 {
        drop(domain.reader());
    }
    let _reader = domain.reader();
    assert_eq!(domain.slots(), 1);
}

#[test]
fn cloned_reader_pins_by_itself() {
    let mut pieces = Reclaimer::new();
    let mut one = pieces.reader();
    let mut two = one.clone();
    let first = one.pin();
    pieces.retire(());
    drop(two.pin());
    pieces.reclaim(|()| panic!("the first reader is pinned"));
    drop(first);
    pieces.wait(|()| ());
    assert_eq!(pieces.pending(), 0);
}

#[test]
fn panicking_batch_unpins() {
    let mut pieces = Reclaimer::new();
    let mut reader = pieces.reader();
    let batch = std::panic::AssertUnwindSafe(|| {
        let _guard = reader.pin();
        panic!("within a batch");
    });
    std::panic::catch_unwind(batch).unwrap_err();
    pieces.retire(());
    pieces.wait(|()| ());
}

#[test]
fn snapshot_follows_versions() {
    let publisher = Publisher::new(1);
    let mut snapshot = publisher.snapshot();
    let kept = snapshot.clone();
    assert!(!snapshot.refresh() && snapshot.is_current());
    assert_eq!(*publisher.publish(2), 1);
    assert_eq!(*publisher.update(|value| value + 1), 2);
    assert_eq!((*snapshot.get(), *publisher.load()), (1, 3));
    assert!(!snapshot.is_current() && snapshot.refresh() && snapshot.is_current());
    assert_eq!((*snapshot.get(), *kept.get()), (3, 1));
    drop((snapshot, kept));
    let old = publisher.publish(4);
    assert_eq!(Arc::strong_count(&old), 1, "nobody else holds it");
}

#[test]
fn held_version_is_not_replaced() {
    let publisher = Publisher::new(1);
    let mut snapshot = publisher.snapshot();
    publisher.publish(2);
    let during = snapshot.with_current(|value| (*value, *publisher.load()));
    assert_eq!(during, (2, 2));
    assert!(snapshot.is_current());
}
