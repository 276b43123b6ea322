//! Capturing whole frames: whoever hands them over, one extractor makes flows of them.

use std::io;

use packet::pcap::Frame;
use sys::capture::Statistics;

use super::worker::Capturing;
use super::{LiveCounters, Plan};
use crate::work::FlowWork;

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
pub(super) struct Framed<S> {
    source: S,
    work: FlowWork,
}

impl<S: Source> Framed<S> {
    pub(super) fn new(source: S, plan: &Plan) -> Self {
        Self {
            source,
            work: FlowWork::new(plan.schema, &plan.options, (plan.sink)()),
        }
    }
}

impl<S: Source> Capturing for Framed<S> {
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
        let (rows, lost_rows) = self.work.rows();
        Ok(LiveCounters {
            account: self.work.counters(),
            no_room: statistics.map_err(|error| error.to_string())?.drops,
            changed_queue: None,
            rows,
            lost_rows,
        })
    }

    fn finish(mut self) -> (LiveCounters, Result<(), String>) {
        let statistics = self.source.statistics().unwrap_or_default();
        let done = self.work.finish();
        let counters = LiveCounters {
            account: done.counters,
            // What was left in the source when we stopped found no room either.
            no_room: statistics
                .packets
                .saturating_sub(done.counters.seen.packets),
            changed_queue: None,
            rows: done.rows,
            lost_rows: done.lost_rows,
        };
        (counters, done.output.map_err(|error| error.to_string()))
    }
}
