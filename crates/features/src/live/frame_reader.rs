//! Capturing whole frames: whoever hands them over, one extractor makes flows of them.

use std::io;

use packet::pcap::Frame;
use sys::capture::Statistics;

use super::worker::Capturing;
use super::{LiveCounters, Plan};
use crate::extractor::RowExtractor;
use crate::options::Options;

/// Where frames come from.
pub(super) trait Source: Send + 'static {
    /// Hands over what has arrived; waits for it, but no longer than the worker's patience. Whether
    /// there was anything.
    fn frames(&mut self, take: impl FnMut(&Frame<'_>)) -> io::Result<bool>;

    /// What the kernel has counted since the start.
    fn statistics(&mut self) -> io::Result<Statistics>;
}

/// A source, and what becomes of its frames.
#[derive(Debug)]
pub(super) struct FrameReader<S> {
    source: S,
    work: RowExtractor,
    /// The kernel's drops, as they were last read.
    no_room: u64,
}

impl<S: Source> FrameReader<S> {
    pub(super) fn new(source: S, plan: &Plan, options: &Options) -> Self {
        Self {
            source,
            work: RowExtractor::to_sink(plan.schema, options, (plan.sink)())
                .recorded_by(plan.recorder.clone()),
            no_room: 0,
        }
    }
}

impl<S: Source> Capturing for FrameReader<S> {
    fn take(&mut self) -> Result<bool, String> {
        let taken = self.source.frames(|frame| self.work.frame(frame));
        taken.map_err(|error| error.to_string())
    }

    fn tick(&mut self, now_ns: i64) -> Result<(), String> {
        self.work.tick(now_ns);
        Ok(())
    }

    fn counters(&mut self) -> Result<LiveCounters, String> {
        let statistics = self.source.statistics();
        self.no_room = statistics.map_err(|error| error.to_string())?.drops;
        let (rows, lost_rows) = self.work.rows();
        Ok(LiveCounters {
            account: self.work.counters(),
            no_room: self.no_room,
            changed_queue: None,
            rows,
            lost_rows,
        })
    }

    fn finish(mut self) -> (LiveCounters, Result<(), String>) {
        let statistics = self.source.statistics();
        let done = self.work.finish();
        let seen = done.counters.seen.packets;
        let counters = LiveCounters {
            account: done.counters,
            no_room: match &statistics {
                // What was left in the source when we stopped found no room either.
                Ok(statistics) => statistics.packets.saturating_sub(seen),
                Err(_) => self.no_room,
            },
            changed_queue: None,
            rows: done.rows,
            lost_rows: done.lost_rows,
        };
        let output = done.output.map_err(|error| error.to_string());
        let read = statistics.map_err(|error| format!("reading the last counters: {error}"));
        (counters, output.and_then(|()| read.map(drop)))
    }
}
