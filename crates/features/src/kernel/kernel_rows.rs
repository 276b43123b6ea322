//! The path of flows from the kernel's ring to rows, including the lookup in the other CPUs' tables.

use datapath::Error;
use sys::bpf_ring::Ring;

use super::bell::Bell;
use super::merge::Parts;
use super::record::key_record;
use super::settings::Settings;
use super::skel::Plain;
use super::skel::flow::types;
use super::tables::Tables;
use crate::flow::{End, Flow, Timers};

#[derive(Debug)]
pub(super) struct KernelRows {
    ring: Ring,
    bell: Bell,
    timers: Timers,
    steps: usize,
    /// `None` if CPUs do not share flows.
    parts: Option<Parts>,
}

impl KernelRows {
    pub(super) fn new(ring: Ring, bell: Bell, settings: &Settings) -> Self {
        Self {
            ring,
            bell,
            timers: settings.options.timers,
            steps: settings.options.limits.steps,
            parts: settings.merge.then(Parts::default),
        }
    }

    /// Sleeps until the ring should be read. Returns whether a program caused the wake-up.
    pub(super) fn wait(&self) -> Result<bool, Error> {
        self.bell.wait([(0, &self.ring)].into_iter())
    }

    /// Exports the flows in the ring, except those of which another CPU has a part.
    pub(super) fn collect(
        &mut self,
        tables: &Tables,
        export: &mut impl FnMut(Box<Flow>),
    ) -> Result<(), Error> {
        while let Some(record) = self.ring.peek().map(types::flow::read) {
            self.ring.pop();
            if let Some(record) = record {
                self.take(tables, &record, export)?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        tables: &Tables,
        record: &types::flow,
        export: &mut impl FnMut(Box<Flow>),
    ) -> Result<(), Error> {
        let flow = Flow::from(record);
        if let Some(parts) = &mut self.parts
            && !matches!(flow.end, End::Early | End::Full)
            && (parts.has(&flow.key) || tables.is_on_other_cpu(record.cpu, &record.key)?)
        {
            parts.add(flow);
        } else {
            export(Box::new(flow));
        }
        Ok(())
    }

    /// Exports a flow that no table holds any more. Call [`Self::settle`] after the last one.
    pub(super) fn last(&mut self, flow: Flow, export: &mut impl FnMut(Box<Flow>)) {
        match &mut self.parts {
            Some(parts) => parts.add(flow),
            None => export(Box::new(flow)),
        }
    }

    /// Exports the waiting flows of which no other CPU has a part any more.
    pub(super) fn settle(
        &mut self,
        tables: &Tables,
        export: &mut impl FnMut(Box<Flow>),
    ) -> Result<(), Error> {
        let Some(parts) = &mut self.parts else {
            return Ok(());
        };
        let mut failed = None;
        let open = |key: &_| {
            let found = tables.find(&key_record(key));
            found.unwrap_or_else(|error| {
                failed = Some(error);
                Vec::new()
            })
        };
        parts.settle(&self.timers, self.steps, open, export);
        failed.map_or(Ok(()), Err)
    }

    pub(super) fn merged(&self) -> u64 {
        self.parts.as_ref().map_or(0, Parts::merged)
    }
}
