//! Routes that change while batches are processed, and what that costs.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use lpm::{NextHop, Prefix4, Prefix6};
use process::shutdown::Shutdown;
use router::engine::Contents;
use router::gpu::UpdateCosts;

use super::measurement::float;
use crate::Error;
use crate::router::engine::MeasuredEngine;

/// Prefixes of each family that change, over and over.
const CHANGING: usize = 1 << 15;

/// The changes of a run: each prefix is withdrawn, then announced again with its next hop.
#[derive(Debug)]
pub(super) struct Updates {
    /// Changes in a second.
    rate: Option<NonZeroU32>,
    v4: Vec<(Prefix4, NextHop)>,
    v6: Vec<(Prefix6, NextHop)>,
}

/// Route changes, and their cost.
#[derive(Clone, Copy, Debug)]
pub struct RouteUpdates {
    pub changes: u64,
    /// Time in calls that change tables.
    pub took: Duration,
    /// The additional cost to batches on a device.
    pub update_costs: Option<UpdateCosts>,
}

impl Updates {
    pub(super) fn new(rate: Option<NonZeroU32>, contents: &Contents) -> Result<Self, Error> {
        let none = contents.v4.is_empty() && contents.v6.is_empty();
        if rate.is_some() && none {
            let what = "--updates changes routes, but the table has none";
            return Err(Error::Input(what.to_owned()));
        }
        let prefixes = if rate.is_some() { CHANGING } else { 0 };
        Ok(Self {
            rate,
            v4: contents.v4.iter().take(prefixes).collect(),
            v6: contents.v6.iter().take(prefixes).collect(),
        })
    }

    /// Changes routes at the rate, if there is one, until the duration is over or shutdown is requested.
    pub(super) fn apply(
        &self,
        tables: &mut impl MeasuredEngine,
        duration: Duration,
        shutdown: &Shutdown,
    ) -> Result<Option<RouteUpdates>, Error> {
        let Some(rate) = self.rate else {
            shutdown.wait(duration);
            return Ok(None);
        };
        let began = Instant::now();
        let (mut changes, mut took) = (0_u64, Duration::ZERO);
        loop {
            let due = Duration::from_secs_f64(float(changes) / f64::from(rate.get()));
            if due >= duration || shutdown.wait(due.saturating_sub(began.elapsed())) {
                break;
            }
            let called = Instant::now();
            self.change(changes, tables).map_err(Error::failed)?;
            took += called.elapsed();
            changes += 1;
        }
        shutdown.wait(duration.saturating_sub(began.elapsed()));
        Ok(Some(RouteUpdates {
            changes,
            took,
            update_costs: tables.update_costs(),
        }))
    }

    /// Every even change withdraws a prefix, and the next one announces it again.
    fn change<E: MeasuredEngine>(&self, number: u64, tables: &mut E) -> Result<(), E::Error> {
        let all = self.v4.len() + self.v6.len();
        let at = usize::try_from(number / 2).unwrap_or_default() % all;
        let announced = |hop| (number % 2 == 1).then_some(hop);
        if let Some((prefix, hop)) = self.v4.get(at) {
            return tables.route4(*prefix, announced(*hop));
        }
        let (prefix, hop) = self.v6[at - self.v4.len()];
        tables.route6(prefix, announced(hop))
    }
}
