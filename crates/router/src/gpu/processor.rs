//! One thread's batches: keys are written where the device reads them, decisions read where it writes
//! them.

use std::ops::Range;
use std::sync::Arc;

use super::launch::{Tables, Way};
use super::lists::{Counts, Lists};
use super::timed::Timed;
use super::{Copy, Error, Options, Shared, input};
use crate::engine::{Answers, Function, Headers, Processor};

/// Packets after which counts of rules are told: before numbers of 32 bits come to their end.
const UNTOLD: usize = 1 << 20;

/// Decides by a device, for one thread.
#[derive(Debug)]
pub struct OnDevice {
    function: Function,
    shared: Arc<Shared>,
    lists: Arc<Lists>,
    counts: Counts,
    /// Packets that rules were counted for since it was told.
    untold: usize,
    ways: Vec<Way>,
    copy: Copy,
}

impl OnDevice {
    pub(super) fn new(
        function: Function,
        shared: &Arc<Shared>,
        options: &Options,
    ) -> Result<Self, Error> {
        let lists = shared.lists();
        let way = |_| Way::new(&shared.device, function, options);
        Ok(Self {
            function,
            counts: lists.count(&shared.device)?,
            lists,
            untold: 0,
            ways: (0..options.streams.get())
                .map(way)
                .collect::<Result<_, _>>()?,
            shared: Arc::clone(shared),
            copy: options.copy,
        })
    }

    /// Has batches timed from the next one on.
    pub(super) fn time(&mut self) -> Result<(), Error> {
        let clock = self.shared.device.clock()?;
        let mut ways = self.ways.iter_mut();
        ways.try_for_each(|way| way.time(&self.shared.device, clock.clone()))
    }

    /// Of each stream's part of the last batch, what was timed of it; none where it had no part.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn timed(&self) -> Result<Vec<Option<Timed>>, Error> {
        self.ways.iter().map(Way::timed).collect()
    }

    /// The tables of now, and counts for their rules.
    fn tables(&mut self) -> Result<Tables, Error> {
        let lists = self.shared.lists();
        if !Arc::ptr_eq(&lists, &self.lists) {
            self.tell()?;
            self.counts = lists.count(&self.shared.device)?;
            self.lists = lists;
        }
        if self.shared.copies().is_behind() {
            // A kernel that stays may hold the copy that is to catch up.
            self.ways.iter_mut().try_for_each(Way::rest)?;
        }
        let routes = self.shared.routes()?;
        Ok(Tables {
            // After the routes were asked for: they may have been told of another hop meanwhile.
            bits: self.shared.bits(self.function),
            routes,
            lists: Arc::clone(&self.lists),
            counts: Arc::clone(&self.counts.on_device),
        })
    }

    /// Tells what was counted. Nothing is on the way.
    fn tell(&mut self) -> Result<(), Error> {
        self.untold = 0;
        // What a kernel counts is read when it has left.
        self.ways.iter_mut().try_for_each(Way::rest)?;
        self.lists.tell(&mut self.counts, &self.shared.device)
    }

    fn send(&mut self, headers: &Headers) -> Result<(), Error> {
        let tables = self.tables()?;
        let (v4, v6) = headers.keyed();
        let parts = self.ways.len();
        for (number, way) in self.ways.iter_mut().enumerate() {
            let these = [part(number, parts, v4), part(number, parts, v6)];
            if these.iter().all(Range::is_empty) {
                way.pass();
                continue;
            }
            let device = &self.shared.device;
            let tables = tables.clone();
            if let Some(whole) = headers.whole() {
                let (input, write) = input::whole(whole, these);
                way.send(device, tables, input, write)?;
            } else {
                let (input, write) = input::keys(headers, self.function, these);
                way.send(device, tables, input, write)?;
            }
        }
        Ok(())
    }

    fn collect(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), Error> {
        answers.v4.clear();
        answers.v6.clear();
        let (v4, v6) = headers.keyed();
        let parts = self.ways.len();
        for (number, way) in self.ways.iter_mut().enumerate() {
            let (v4, v6) = (part(number, parts, v4), part(number, parts, v6));
            if v4.len() + v6.len() > 0 {
                let mut decisions = way.collect()?;
                answers.v4.extend(decisions.by_ref().take(v4.len()));
                answers.v6.extend(decisions);
            }
        }
        Ok(())
    }
}

impl Processor for OnDevice {
    type Error = Error;

    fn function(&self) -> Function {
        self.function
    }

    fn reads_frames(&self) -> bool {
        self.copy == Copy::Full
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.ways.iter_mut().try_for_each(Way::rest)
    }

    fn process_batch(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), Error> {
        self.send(headers)?;
        self.collect(headers, answers)?;
        self.untold += headers.len();
        if self.untold >= UNTOLD {
            self.tell()?;
        }
        Ok(())
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        let settled = self.ways.iter_mut().all(|way| way.collect().is_ok());
        if settled && self.function.filters() {
            // A device that is gone has told what it could.
            let _ = self.tell();
        }
    }
}

/// One of so many parts of a batch.
fn part(number: usize, parts: usize, keys: usize) -> Range<usize> {
    keys * number / parts..keys * (number + 1) / parts
}
