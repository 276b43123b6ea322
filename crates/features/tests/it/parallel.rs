//! Several workers on one capture: the same rows as one, and the same account.

use std::num::NonZeroU32;

use features::dissect::Tunnels;
use features::pcap::{Captures, Progress, Run, Summary};
use features::sink::{Error, Nowhere, Sink, json_lines};
use features::{Extractor, Options};
use packet::pcap::{ETHERNET, Reader, Writer};

use crate::common::{self, MemorySink, assert_same, captures, run};

/// Rows as text, and what became of packets.
fn rows(run: &Run, workers: u32, capture: &[u8]) -> (Summary, Vec<String>) {
    let kept = MemorySink::default();
    let workers = NonZeroU32::new(workers).unwrap();
    let progress = Progress::default();
    let summary = run.run_on(
        workers,
        Captures::one(capture),
        Box::new(kept.clone()),
        &progress,
    );
    let mut json = Vec::new();
    for batch in &*kept.0.lock().unwrap() {
        json.extend(json_lines(batch).unwrap());
    }
    let text = String::from_utf8(json).unwrap();
    (summary, text.lines().map(str::to_owned).collect())
}

fn check(name: &str, run: &Run, capture: &[u8]) {
    let (alone, expected) = rows(run, 1, capture);
    for workers in [2, 5] {
        let (shared, rows) = rows(run, workers, capture);
        let name = format!("{name}, {}, {workers} workers", run.schema.name);
        assert_eq!(shared.counters, alone.counters, "{name}");
        assert_eq!(shared.counters.unaccounted(), 0, "{name}");
        assert_eq!(
            (shared.rows, shared.lost_rows),
            (alone.rows, alone.lost_rows),
            "{name}"
        );
        let error = |summary: &Summary| summary.damaged.first().map(ToString::to_string);
        assert_eq!(error(&shared), error(&alone), "{name}");
        assert_same(&name, &rows, &expected);
    }
}

#[test]
fn rows_of_every_capture_are_the_same() {
    for (name, capture) in captures() {
        for schema in ["flow.v1", "packet.v1"] {
            check(&name, &run(schema), &capture);
        }
        let mut inner = run("nfstream.v1");
        inner.options.tunnels = Tunnels::Inner;
        check(&name, &inner, &capture);
    }
}

/// Times that go back by more than any timeout, and far ahead, again and again.
#[test]
fn a_clock_that_jumps_ends_the_same_flows() {
    let mix = loadgen::mix::write(Vec::new(), 60_000, 5).unwrap();
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for (at, captured) in (0..).zip(Reader::new(mix.as_slice()).unwrap()) {
        let captured = captured.unwrap();
        let jump = [0, -3_000, 40, 100_000, -200, 7][at / 3000 % 6] * 1_000_000_000;
        writer
            .write(captured.timestamp_ns + jump, &captured.frame)
            .unwrap();
    }
    let capture = writer.finish().unwrap();
    let mut run = run("flow.v1");
    check("jumps", &run, &capture);
    run.options.timers.idle_ns = 50_000_000;
    run.options.timers.linger_ns = Some(70_000_000);
    check("short timeouts", &run, &capture);
}

#[test]
fn what_comes_before_a_break_is_read_and_the_break_is_told() {
    let capture = common::capture(400);
    check("cut off", &run("flow.v1"), &capture[..capture.len() - 7]);
    check("no packets", &run("flow.v1"), &common::capture(0));
}

/// Takes a few rows and then fails.
struct Failing(u64);

impl Sink for Failing {
    fn write(&mut self, batch: &arrow_array::RecordBatch) -> Result<(), Error> {
        self.0 += batch.num_rows() as u64;
        Err(Error::Stuck)
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.0
    }
}

#[test]
fn an_output_that_fails_ends_the_run_and_every_row_is_counted() {
    let capture = loadgen::mix::write(Vec::new(), 400_000, 3).unwrap();
    let (workers, progress) = (NonZeroU32::new(3).unwrap(), Progress::default());
    let run = run("packet.v1");
    let summary = run.run_on(
        workers,
        Captures::one(capture.as_slice()),
        Box::new(Failing(0)),
        &progress,
    );
    assert!(summary.output.is_some());
    assert_eq!(summary.rows, 0);
    assert_eq!(summary.lost_rows, summary.counters.exported.packets);
    let all = run.run(capture.as_slice(), Box::new(Nowhere), &progress);
    assert!(summary.counters.seen.packets < all.counters.seen.packets);
}

#[test]
fn a_full_table_is_shared_out_and_loses_nothing() {
    let mut run = run("flow.v1");
    run.options.limits.most_flows = 10;
    let (summary, rows) = rows(&run, 4, &common::capture(200));
    let counters = summary.counters;
    assert_eq!(counters.unaccounted(), 0);
    assert!(counters.exported.table_full > 0);
    assert_eq!(rows.len() as u64, counters.exported.flows);
}

#[test]
fn an_extractor_that_is_stopped_early_still_adds_up() {
    let mut extractor = Extractor::new(&Options::default(), drop);
    let capture = common::capture(10);
    for captured in Reader::new(capture.as_slice()).unwrap() {
        extractor.frame(&captured.unwrap().as_frame());
    }
    let counters = extractor.counters();
    assert!(counters.open > 0);
    assert_eq!(counters.unaccounted(), 0);
}
