//! Evictions: finds flows that appear due, and calls the program that removes those that are.
//!
//! Reading and then deleting from userspace would lose the packets counted in between. The kernel therefore checks
//! again and deletes on the CPU that owns the table, where no packet can come in between (evict.h).

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bpf::{Cursor, Map};
use datapath::Error;

use super::calls::run_live;
use super::failed;
use super::skel::flow::types;
use super::tables::{Batch, Table, Tables, batch};
use crate::flow::{Flow, Timers};

/// MOST_EVICTIONS and EVICTIONS_PER_FRAME of evict.h.
const MAX_EVICTIONS: usize = 4096;
const PER_FRAME: u32 = 64;

/// The progress of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepProgress {
    /// All tables were checked; the next sweep starts from the beginning.
    pub whole: bool,
    /// The number of evicted flows.
    pub evicted: u32,
    /// The number of due flows that stayed because the ring was full.
    pub ring_full: u32,
}

#[derive(Debug)]
pub(super) struct Sweep {
    timers: Timers,
    program: OwnedFd,
    evictions: Map<u32, types::eviction>,
    candidates: Map<u32, types::flow_key>,
    /// The position at which the last sweep stopped.
    table: usize,
    cursor: Cursor,
    batch: Batch,
    /// Keys of flows that appear due.
    due: Vec<types::flow_key>,
}

impl Sweep {
    pub(super) fn new(
        timers: Timers,
        program: OwnedFd,
        evictions: Map<u32, types::eviction>,
        candidates: Map<u32, types::flow_key>,
    ) -> Self {
        Self {
            timers,
            program,
            evictions,
            candidates,
            table: 0,
            cursor: Cursor::default(),
            batch: batch(),
            due: Vec::new(),
        }
    }

    /// Checks the tables until the budget is spent or all are done. `collect` empties the ring.
    pub(super) fn go_on(
        &mut self,
        tables: &Tables,
        horizon_ns: i64,
        budget: Duration,
        collect: &mut impl FnMut() -> Result<(), Error>,
    ) -> Result<SweepProgress, Error> {
        let start = Instant::now();
        let mut swept = SweepProgress::default();
        while let Some(table) = tables.get(self.table) {
            let more = self.look(table, horizon_ns)?;
            let spent = start.elapsed() >= budget;
            if !more || spent || self.due.len() + self.batch.room() > MAX_EVICTIONS {
                self.evict(table, horizon_ns, &mut swept)?;
                collect()?;
            }
            if !more {
                self.table += 1;
            }
            if spent {
                break;
            }
        }
        swept.whole = tables.get(self.table).is_none();
        if swept.whole {
            self.table = 0;
        }
        Ok(swept)
    }

    /// Reads the next flows of a table and collects the keys that appear due. Returns whether there are more.
    fn look(&mut self, table: &Table, horizon_ns: i64) -> Result<bool, Error> {
        let more = table.read(&mut self.batch, &mut self.cursor)?;
        for record in self.batch.values() {
            // A cheap test first: no timer is negative, so most flows need no conversion.
            if record.last_ns <= horizon_ns
                && self.timers.deadline(&Flow::from(record)).0 <= horizon_ns
            {
                self.due.push(record.key);
            }
        }
        Ok(more)
    }

    /// Lets the kernel evict the collected flows that are due.
    fn evict(
        &mut self,
        table: &Table,
        horizon_ns: i64,
        swept: &mut SweepProgress,
    ) -> Result<(), Error> {
        for due in self.due.chunks(MAX_EVICTIONS) {
            let done = self.call(table.cpu, horizon_ns, due)?;
            swept.evicted += done.evicted;
            swept.ring_full += done.ring_full;
        }
        self.due.clear();
        Ok(())
    }

    fn call(
        &self,
        cpu: u32,
        horizon_ns: i64,
        due: &[types::flow_key],
    ) -> Result<types::eviction, Error> {
        let count = u32::try_from(due.len()).unwrap_or(0);
        let order = types::eviction {
            horizon_ns,
            count,
            cpu,
            ..types::eviction::default()
        };
        self.candidates
            .set_range(0, due)
            .map_err(failed("naming the flows that are due"))?;
        self.evictions
            .set(&0, &order)
            .map_err(failed("ordering an eviction"))?;
        let on_cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
        sys::sched::on_cpu(on_cpu, || {
            run_live(&self.program, count.div_ceil(PER_FRAME))
        })
        .and_then(|result| result)
        .map_err(|error| Error::failed(format!("evicting flows on CPU {cpu}"), error))?;
        let done = self.evictions.get(&0);
        let done = done.map_err(failed("reading what was evicted"))?;
        Ok(done.unwrap_or_default())
    }
}
