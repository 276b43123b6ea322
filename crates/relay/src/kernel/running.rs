//! A fast path that the kernel runs by itself: userspace brings its tables from plan to plan.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use datapath::{Detachment, Error};
use netdev::Attachments;

use super::{Tables, attach, interfaces};
use crate::counters::Counters;
use crate::handover::FastPath;
use crate::plan::Plan;
use crate::{Relay, Running};

/// A running one.
#[derive(Debug)]
pub(crate) struct InKernel<B> {
    /// Dropped before the tables: no frame is sent by tables that are going.
    attached: Attachments,
    tables: Arc<Tables>,
    _resources: B,
}

impl<B: Debug + Send + 'static> InKernel<B> {
    /// Attaches what the plan asks for. `resources` is what the program needs for as long as it runs.
    pub(crate) fn start(
        attached: Attachments,
        tables: Arc<Tables>,
        resources: B,
        plan: &Plan,
    ) -> Result<Running, Error> {
        let mut running = Self {
            attached,
            tables,
            _resources: resources,
        };
        running.apply(plan)?;
        Ok(Box::new(running))
    }

    fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let plan = interfaces::resolved(plan)?;
        self.tables.apply(&plan, &BTreeMap::new())?;
        attach(&mut self.attached, &self.tables, &plan)
    }
}

impl<B: Debug + Send + 'static> datapath::Running<Relay> for InKernel<B> {
    fn reconfigure(&mut self, plan: &Plan) -> Result<(), Error> {
        self.apply(plan)
    }

    fn counters(&self) -> Counters {
        self.tables.counters()
    }

    /// A device that goes takes its attachment with it; the others' stay as they are.
    fn failed(&self) -> Option<String> {
        None
    }

    fn reattach(&mut self) -> Vec<Detachment> {
        self.attached.reattach()
    }

    fn detachments(&self) -> Vec<Detachment> {
        self.attached.detachments()
    }

    fn fast_path(&self) -> Option<Arc<dyn FastPath>> {
        Some(Arc::clone(&self.tables) as Arc<dyn FastPath>)
    }

    fn stop(mut self: Box<Self>) -> Counters {
        self.attached.clear();
        self.tables.counters()
    }
}
