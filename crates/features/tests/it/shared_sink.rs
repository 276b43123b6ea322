//! One output that several workers write to: nothing is counted twice, and it is completed once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use arrow_array::{RecordBatch, UInt64Array};
use features::sink::{Error, Shared, Sink};

/// Loses every third batch, and one more at the end.
#[derive(Clone, Default)]
struct Leaky {
    batches: Arc<AtomicU64>,
    finished: Arc<AtomicU64>,
}

impl Sink for Leaky {
    fn write(&mut self, _batch: &RecordBatch) -> Result<(), Error> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        assert_eq!(self.finished.load(Ordering::Relaxed), 0);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Err(Error::Stuck)
    }

    fn lost(&self) -> u64 {
        let of_batches = self.batches.load(Ordering::Relaxed) / 3;
        10 * (of_batches + self.finished.load(Ordering::Relaxed))
    }
}

fn batch() -> RecordBatch {
    let column: UInt64Array = (0..10).collect();
    RecordBatch::try_from_iter([("a", Arc::new(column) as _)]).unwrap()
}

#[test]
fn rows_and_losses_of_all_workers_add_up() {
    let leaky = Leaky::default();
    let shared = Shared::new(Box::new(leaky.clone()));
    let handles: Vec<_> = (0..3).map(|_| shared.handle()).collect();
    let workers: Vec<_> = (0_u64..)
        .zip(handles)
        .map(|(number, mut handle)| {
            thread::spawn(move || {
                let given = 7 * number;
                for _ in 0..given {
                    handle.write(&batch()).unwrap();
                }
                let failed = handle.finish().is_err();
                (10 * given, handle.lost(), failed)
            })
        })
        .collect();
    let done: Vec<_> = workers.into_iter().map(|one| one.join().unwrap()).collect();
    assert_eq!(leaky.finished.load(Ordering::Relaxed), 1);
    assert!(done.iter().all(|(given, lost, _)| lost <= given));
    assert_eq!(done.iter().map(|(_, lost, _)| lost).sum::<u64>(), 80);
    assert_eq!(done.iter().filter(|(_, _, failed)| *failed).count(), 1);
}

#[test]
fn a_worker_that_is_gone_keeps_nobody_waiting() {
    let leaky = Leaky::default();
    let shared = Shared::new(Box::new(leaky.clone()));
    let (mut one, other) = (shared.handle(), shared.handle());
    let dropped = thread::spawn(move || drop(other));
    assert!(one.finish().is_err());
    dropped.join().unwrap();
    assert_eq!(leaky.finished.load(Ordering::Relaxed), 1);
}
