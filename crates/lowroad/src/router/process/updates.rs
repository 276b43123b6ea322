//! Routes that change while batches are decided about, and what that costs.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use lpm::{NextHop, Prefix4, Prefix6};
use router::engine::Contents;
use router::gpu::CaughtUp;
use serde_json::{Value, json};

use super::measure::float;
use super::subject::Subject;
use crate::exit::Failure;

/// Prefixes of each family that change, over and over.
const CHANGING: usize = 1 << 15;

#[derive(Debug, Args)]
pub(super) struct Updates {
    /// Routes of packets from memory that change in a second meanwhile: each is withdrawn, then announced again
    #[arg(long, value_name = "N")]
    pub(super) updates: Option<NonZeroU32>,
}

/// Prefixes that change, each with its next hop.
#[derive(Debug, Default)]
pub(super) struct Changing {
    v4: Vec<(Prefix4, NextHop)>,
    v6: Vec<(Prefix6, NextHop)>,
}

/// What changes came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    pub(super) changes: u64,
    /// In calls that change tables.
    pub(super) took: Duration,
    /// What batches on a device paid besides.
    pub(super) caught_up: Option<CaughtUp>,
}

impl Updates {
    pub(super) fn of(&self, contents: &Contents) -> Result<Changing, Failure> {
        if self.updates.is_none() {
            return Ok(Changing::default());
        }
        if contents.v4.is_empty() && contents.v6.is_empty() {
            let what = "--updates changes routes, and there are none";
            return Err(Failure::Input(what.to_owned()));
        }
        Ok(Changing {
            v4: contents.v4.iter().take(CHANGING).collect(),
            v6: contents.v6.iter().take(CHANGING).collect(),
        })
    }

    /// Until the time is over or it shall end.
    pub(super) fn make(
        &self,
        tables: &mut impl Subject,
        changing: &Changing,
        duration: Duration,
        shutdown: &Shutdown,
    ) -> Result<Option<Changed>, Failure> {
        let Some(rate) = self.updates else {
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
            changing
                .change(changes, tables)
                .map_err(|error| anyhow!(error))?;
            took += called.elapsed();
            changes += 1;
        }
        shutdown.wait(duration.saturating_sub(began.elapsed()));
        Ok(Some(Changed {
            changes,
            took,
            caught_up: tables.caught_up(),
        }))
    }
}

impl Changing {
    /// Every even change withdraws, the next one announces the same.
    fn change<E: Subject>(&self, number: u64, tables: &mut E) -> Result<(), E::Error> {
        let all = self.v4.len() + self.v6.len();
        let at = usize::try_from(number / 2).unwrap_or_default() % all;
        let kept = |hop| (number % 2 == 1).then_some(hop);
        if let Some((prefix, hop)) = self.v4.get(at) {
            return tables.route4(*prefix, kept(*hop));
        }
        let (prefix, hop) = self.v6[at - self.v4.len()];
        tables.route6(prefix, kept(hop))
    }
}

impl Changed {
    pub(super) fn json(&self) -> Value {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let each = |time: Duration, times: u64| us(time) / float(times.max(1));
        json!({
            "changes": self.changes,
            "us_per_change": each(self.took, self.changes),
            "device": self.caught_up.map(|caught_up| json!({
                "batches": caught_up.times,
                "us_per_batch": each(caught_up.took, caught_up.times),
                "bytes": caught_up.bytes,
            })),
        })
    }

    pub(super) fn text(&self) -> String {
        let value = self.json();
        let number = |value: &Value| super::told::short(value.as_f64().unwrap_or_default());
        let mut text = format!(
            "  {} route changes meanwhile, {} us each",
            self.changes,
            number(&value["us_per_change"])
        );
        if let Some(caught_up) = self.caught_up {
            text += &format!(
                "; {} batches took them to the device, {} us and {} bytes each",
                caught_up.times,
                number(&value["device"]["us_per_batch"]),
                caught_up.bytes / caught_up.times.max(1)
            );
        }
        text + "\n"
    }
}
