//! Rows that are pulled: all of them, no further ahead than agreed, and with the fault at their end.

use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use datapath::{Datapath, Missing};
use features::kernel::Wakeup;
use features::live::{Direction, Features, LiveCounters, Plan, RunSummary};
use features::pcap::Run;
use features::sink::{Nowhere, Sink};
use features::stream::{CaptureStream, Error, LiveStream};
use features::{Options, schema};
use packet::build;
use packet::pcap::{ETHERNET, Writer};

use crate::common::{self, MemorySink, capture, captures, wait_until, write};

fn stream(input: impl Read + Send + 'static, schema: &str) -> CaptureStream {
    CaptureStream::start(common::run(schema), input).unwrap()
}

#[test]
fn every_capture_gives_the_rows_that_a_sink_gets() {
    for (name, capture) in captures() {
        for schema in ["flow.v1", "cic.v1"] {
            let keeper = MemorySink::default();
            let summary = write(&capture, schema, Box::new(keeper.clone()));
            let mut stream = stream(Cursor::new(capture.clone()), schema);
            let (batches, errors): (Vec<_>, Vec<_>) = stream.by_ref().partition(Result::is_ok);
            let batches: Vec<RecordBatch> = batches.into_iter().map(Result::unwrap).collect();
            assert_eq!(*keeper.0.lock().unwrap(), batches, "{name} {schema}");
            assert_eq!(errors.is_empty(), summary.check().is_ok(), "{name}");
            assert_eq!(stream.summary().unwrap().counters, summary.counters);
        }
    }
}

#[test]
fn what_came_before_a_fault_comes_before_the_error() {
    let mut capture = capture(600);
    capture.truncate(capture.len() - 3);
    let mut stream = stream(Cursor::new(capture), "cic.v1");
    let mut rows = 0;
    let fault = loop {
        match stream.next().unwrap() {
            Ok(batch) => rows += batch.num_rows(),
            Err(error) => break error.to_string(),
        }
    };
    assert!(rows > 1000, "{rows}");
    assert!(fault.contains("the rows of what came before"), "{fault}");
    assert!(stream.next().is_none());
}

/// A capture without an end, in which each packet is a flow.
struct Endless {
    unread: Cursor<Vec<u8>>,
    flow: u32,
    _alive: Arc<()>,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.unread.read(into)?;
        if read > 0 {
            return Ok(read);
        }
        let first = self.flow == 0;
        let mut writer = Writer::new(Vec::new(), ETHERNET)?;
        let header = if first { 0 } else { 24 };
        for _ in 0..100 {
            self.flow += 1;
            let [_, a, b, c] = self.flow.to_be_bytes();
            let (from, to) = (([10, a, b, c], 1).into(), ([192, 0, 2, 1], 9).into());
            writer.write(i64::from(self.flow) * 1000, &build::udp(from, to).frame())?;
        }
        self.unread = Cursor::new(writer.finish()?.split_off(header));
        self.unread.read(into)
    }
}

#[test]
fn reading_is_no_further_ahead_than_a_few_batches_and_ends_with_its_stream() {
    let alive = Arc::new(());
    let mut options = Options::default();
    options.limits.most_flows = 1000;
    let run = Run {
        options,
        schema: schema::find("nfstream.v1").unwrap(),
    };
    let input = Endless {
        unread: Cursor::default(),
        flow: 0,
        _alive: Arc::clone(&alive),
    };
    let mut stream = CaptureStream::start(run, input).unwrap();
    let mut pulled = 0;
    for _ in 0..40 {
        let packets = stream.progress().packets.load(Ordering::Relaxed);
        // Open flows, and batches: waiting, on their way in, and on their way out.
        assert!(packets <= pulled + 1000 + 7 * 2048, "{packets} {pulled}");
        pulled += stream.next().unwrap().unwrap().num_rows() as u64;
    }
    assert!(Arc::strong_count(&alive) == 2);
    drop(stream);
    wait_until("reading has ended", || Arc::strong_count(&alive) == 1);
}

/// A datapath that gives batches as soon as it starts, and one when it stops.
struct StubDatapath {
    batches: usize,
    failure: Option<String>,
    stopped: Arc<AtomicBool>,
}

struct FakeRunning {
    sink: Box<dyn Sink>,
    rows: u64,
    failure: Option<String>,
    stopped: Arc<AtomicBool>,
}

impl Datapath<Features> for StubDatapath {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn check(&self) -> Result<(), Missing> {
        Ok(())
    }

    fn start(&self, plan: &Plan) -> Result<features::live::Running, datapath::Error> {
        let mut sink = (plan.sink)();
        for _ in 0..self.batches {
            sink.write(&batch()).unwrap();
        }
        Ok(Box::new(FakeRunning {
            sink,
            rows: self.batches as u64,
            failure: self.failure.clone(),
            stopped: Arc::clone(&self.stopped),
        }))
    }
}

impl datapath::Running<Features> for FakeRunning {
    fn reconfigure(&mut self, _plan: &Plan) -> Result<(), datapath::Error> {
        unreachable!("nobody asks")
    }

    fn counters(&self) -> LiveCounters {
        LiveCounters {
            rows: self.rows - self.sink.lost(),
            lost_rows: self.sink.lost(),
            ..LiveCounters::default()
        }
    }

    fn failed(&self) -> Option<String> {
        self.failure.clone()
    }

    fn stop(mut self: Box<Self>) -> RunSummary {
        self.sink.write(&batch()).unwrap();
        self.sink.finish().unwrap();
        self.rows += 1;
        self.stopped.store(true, Ordering::Relaxed);
        RunSummary {
            counters: self.counters(),
            failed: self.failed(),
        }
    }
}

fn batch() -> RecordBatch {
    let column: arrow_array::UInt64Array = (0..1).collect();
    RecordBatch::try_from_iter([("a", Arc::new(column) as _)]).unwrap()
}

fn live(batches: usize, failure: Option<&str>) -> (LiveStream, Arc<AtomicBool>) {
    let fake = StubDatapath {
        batches,
        failure: failure.map(str::to_owned),
        stopped: Arc::default(),
    };
    let plan = Plan {
        interface: "fake0".to_owned(),
        ifindex: 1,
        options: Options::default(),
        schema: schema::find("flow.v1").unwrap(),
        direction: Direction::In,
        promiscuous: false,
        tap: false,
        workers: None,
        wakeup: Wakeup::default(),
        steer: false,
        recorder: None,
        sink: Arc::new(|| Box::new(Nowhere)),
        model: None,
    };
    (LiveStream::start(&fake, plan, None).unwrap(), fake.stopped)
}

#[test]
fn what_is_left_at_a_stop_is_pulled() {
    let (mut stream, stopped) = live(3, None);
    assert!(stream.next().unwrap().is_ok());
    assert!(!stopped.load(Ordering::Relaxed));
    stream.handle().stop();
    assert_eq!(stream.by_ref().map(Result::unwrap).count(), 3);
    assert_eq!(stream.handle().counters().rows, 4);
    assert!(stopped.load(Ordering::Relaxed));
}

#[test]
fn a_device_that_fails_ends_its_stream_with_the_reason() {
    let (mut stream, _) = live(2, Some("is gone"));
    let last = stream.by_ref().last().unwrap();
    assert_eq!(last.unwrap_err().to_string(), "fake0: is gone");
    assert!(stream.next().is_none());
}

#[test]
fn rows_that_nobody_pulls_in_time_are_counted_and_told() {
    let (mut stream, _) = live(100, None);
    stream.handle().stop();
    let mut rows = 0;
    let error = loop {
        match stream.next().unwrap() {
            Ok(_) => rows += 1,
            Err(error) => break error,
        }
    };
    let counters = stream.handle().counters();
    assert_eq!(rows + counters.lost_rows, 101);
    assert!(matches!(error, Error::Lost(lost) if lost == counters.lost_rows && lost > 0));
}

#[test]
fn a_dropped_stream_stops_its_datapath_though_nobody_pulls() {
    let (mut stream, stopped) = live(64, None);
    let patience = Duration::from_millis(1);
    assert!(stream.next_within(patience).is_ok());
    drop(stream);
    assert!(stopped.load(Ordering::Relaxed));
}
