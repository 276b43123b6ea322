//! The queue before a slow output: live, it loses rows and counts them; else it holds up who fills it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use arrow_array::{RecordBatch, UInt64Array};
use features::sink::{Error, Mode, Queue, Sink};

/// Takes a batch for each permit that it is given, and the rest once nobody can give any more.
struct GatedSink {
    permits: Receiver<()>,
    rows: Arc<AtomicU64>,
}

impl Sink for GatedSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let _ = self.permits.recv();
        self.rows
            .fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        0
    }
}

fn gated(mode: Mode) -> (Queue, Sender<()>, Arc<AtomicU64>) {
    let (permit, permits) = channel();
    let rows = Arc::new(AtomicU64::new(0));
    let sink = GatedSink {
        permits,
        rows: Arc::clone(&rows),
    };
    (Queue::start(Box::new(sink), mode).unwrap(), permit, rows)
}

fn batch() -> RecordBatch {
    let column: UInt64Array = (0..10).collect();
    RecordBatch::try_from_iter([("a", Arc::new(column) as _)]).unwrap()
}

#[test]
fn live_a_slow_output_costs_rows_and_no_time() {
    let (mut queue, permit, rows) = gated(Mode::Live);
    for _ in 0..500 {
        queue.write(&batch()).unwrap();
    }
    let lost = queue.lost();
    assert!(lost >= 4000, "{lost}");
    drop(permit);
    queue.finish().unwrap();
    assert_eq!(rows.load(Ordering::Relaxed) + queue.lost(), 5000);
}

#[test]
fn a_slow_output_holds_up_a_file() {
    let (mut queue, permit, rows) = gated(Mode::Whole);
    let reader = thread::spawn(move || (0..200).for_each(|_| permit.send(()).unwrap()));
    for _ in 0..500 {
        queue.write(&batch()).unwrap();
    }
    queue.finish().unwrap();
    reader.join().unwrap();
    assert_eq!((queue.lost(), rows.load(Ordering::Relaxed)), (0, 5000));
}

#[test]
fn an_output_that_does_not_move_does_not_keep_a_live_run_from_ending() {
    let (mut queue, permit, rows) = gated(Mode::Live);
    for _ in 0..5 {
        queue.write(&batch()).unwrap();
    }
    permit.send(()).unwrap();
    while rows.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    assert!(queue.finish().is_err());
    assert_eq!(queue.lost(), 40);
    drop(permit);
}

#[test]
fn what_fails_ends_the_run_and_everything_after_is_lost() {
    struct Failing(u64);
    impl Sink for Failing {
        fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
            if self.0 == 2 {
                self.0 += 1;
                return Err(Error::Stuck);
            }
            assert!(self.0 < 2, "written after an error");
            self.0 += u64::from(batch.num_rows() > 0);
            Ok(())
        }
        fn finish(&mut self) -> Result<(), Error> {
            Ok(())
        }
        fn lost(&self) -> u64 {
            if self.0 > 2 { 10 } else { 0 }
        }
    }
    let mut queue = Queue::start(Box::new(Failing(0)), Mode::Whole).unwrap();
    let mut given = 0;
    let failed = (0..1000).any(|_| {
        given += 10;
        queue.write(&batch()).is_err()
    });
    let finished = queue.finish();
    assert!(failed || finished.is_err());
    assert_eq!(queue.lost() + 20, given);
}
