//! Captures whole frames. One extractor turns them into flows, independent of their source.

use std::io;

use packet::pcap::Frame;
use sys::capture::Statistics;

use super::worker::Capturing;
use super::{LiveCounters, Plan};
use crate::extractor::RowExtractor;
use crate::options::Options;

/// A source of frames.
pub(super) trait Source: Send + 'static {
    /// Passes on the frames that have arrived. Waits for frames, but no longer than the worker's timeout. Returns
    /// whether any arrived.
    fn frames(&mut self, take: impl FnMut(&Frame<'_>)) -> io::Result<bool>;

    /// The kernel's counters since the start.
    fn statistics(&mut self) -> io::Result<Statistics>;
}

/// Reads the frames of a source and extracts their flows.
#[derive(Debug)]
pub(super) struct FrameReader<S> {
    source: S,
    work: RowExtractor,
    /// The kernel's drops when they were last read.
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
                // Frames left in the source at the stop count as lost for lack of room.
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
