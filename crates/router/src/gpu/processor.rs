//! Processes one thread's batches: writes keys to the device's input, and reads decisions from its output.

use std::ops::Range;
use std::sync::Arc;

use super::batch_times::BatchTimes;
use super::launch::{BatchStream, Tables};
use super::lists::{Counts, Lists};
use super::{CopyMode, Error, Options, Shared, input};
use crate::engine::{Answers, Function, Headers, Processor};

/// Packets between two reports of hits: before counters of 32 bits wrap around.
const REPORT_INTERVAL: usize = 1 << 20;

/// Processes one thread's batches on a device.
#[derive(Debug)]
pub struct DeviceProcessor {
    function: Function,
    shared: Arc<Shared>,
    lists: Arc<Lists>,
    counts: Counts,
    /// Packets since the last report of hits.
    unreported: usize,
    streams: Vec<BatchStream>,
    copy: CopyMode,
}

impl DeviceProcessor {
    pub(super) fn new(
        function: Function,
        shared: &Arc<Shared>,
        options: &Options,
    ) -> Result<Self, Error> {
        let lists = shared.lists();
        let stream = |_| BatchStream::new(&shared.device, function, options);
        Ok(Self {
            function,
            counts: lists.count(&shared.device)?,
            lists,
            unreported: 0,
            streams: (0..options.streams.get())
                .map(stream)
                .collect::<Result<_, _>>()?,
            shared: Arc::clone(shared),
            copy: options.copy,
        })
    }

    /// Times batches from the next one on.
    pub(super) fn time(&mut self) -> Result<(), Error> {
        let clock = self.shared.device.clock()?;
        let mut streams = self.streams.iter_mut();
        streams.try_for_each(|stream| stream.time(&self.shared.device, clock.clone()))
    }

    /// The times of each stream's part of the last batch; none for a stream without a part.
    ///
    /// # Errors
    /// The device is lost.
    pub fn batch_times(&self) -> Result<Vec<Option<BatchTimes>>, Error> {
        self.streams.iter().map(BatchStream::batch_times).collect()
    }

    /// The current tables, and counters for their rules.
    fn tables(&mut self) -> Result<Tables, Error> {
        let lists = self.shared.lists();
        if !Arc::ptr_eq(&lists, &self.lists) {
            self.report_hits()?;
            self.counts = lists.count(&self.shared.device)?;
            self.lists = lists;
        }
        if self.shared.tables().is_stale() {
            // A persistent kernel may hold the copy that is to be updated.
            self.streams
                .iter_mut()
                .try_for_each(BatchStream::release_tables)?;
        }
        let routes = self.shared.routes()?;
        Ok(Tables {
            // Read after the routes, because a new next hop may have been added meanwhile.
            bits: self.shared.bits(self.function),
            routes,
            lists: Arc::clone(&self.lists),
            counts: Arc::clone(&self.counts.buffers),
        })
    }

    /// Reports hits. No batch may be in flight.
    fn report_hits(&mut self) -> Result<(), Error> {
        self.unreported = 0;
        // A kernel's counters can be read when it has ended.
        self.streams
            .iter_mut()
            .try_for_each(BatchStream::release_tables)?;
        self.lists.add_hits(&mut self.counts, &self.shared.device)
    }

    fn send(&mut self, headers: &Headers) -> Result<(), Error> {
        let tables = self.tables()?;
        let (v4, v6) = headers.keyed();
        let parts = self.streams.len();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let these = [part(number, parts, v4), part(number, parts, v6)];
            if these.iter().all(Range::is_empty) {
                stream.pass();
                continue;
            }
            let device = &self.shared.device;
            let tables = tables.clone();
            if let Some(whole) = headers.whole() {
                let (input, write) = input::whole(whole, these);
                stream.send(device, tables, input, write)?;
            } else {
                let (input, write) = input::keys(headers, self.function, these);
                stream.send(device, tables, input, write)?;
            }
        }
        Ok(())
    }

    fn collect(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), Error> {
        answers.v4.clear();
        answers.v6.clear();
        let (v4, v6) = headers.keyed();
        let parts = self.streams.len();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let (v4, v6) = (part(number, parts, v4), part(number, parts, v6));
            if v4.len() + v6.len() > 0 {
                let mut decisions = stream.collect()?;
                answers.v4.extend(decisions.by_ref().take(v4.len()));
                answers.v6.extend(decisions);
            }
        }
        Ok(())
    }
}

impl Processor for DeviceProcessor {
    type Error = Error;

    fn function(&self) -> Function {
        self.function
    }

    fn reads_frames(&self) -> bool {
        self.copy == CopyMode::Full
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.streams
            .iter_mut()
            .try_for_each(BatchStream::release_tables)
    }

    fn process_batch(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), Error> {
        self.send(headers)?;
        self.collect(headers, answers)?;
        self.unreported += headers.len();
        if self.unreported >= REPORT_INTERVAL {
            self.report_hits()?;
        }
        Ok(())
    }
}

impl Drop for DeviceProcessor {
    fn drop(&mut self) {
        let settled = self
            .streams
            .iter_mut()
            .all(|stream| stream.collect().is_ok());
        if settled && self.function.filters() {
            // A lost device cannot report.
            let _ = self.report_hits();
        }
    }
}

/// The range of keys of part `number` of `parts`.
fn part(number: usize, parts: usize, keys: usize) -> Range<usize> {
    keys * number / parts..keys * (number + 1) / parts
}
