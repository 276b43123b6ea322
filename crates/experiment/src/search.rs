//! The bracketing search for the highest rate that passes (RFC 2544 throughput, NDR).
//!
//! Only rates that were offered are ever reported: the answer is the best step that passed.

use anyhow::{Result, ensure};

/// One offered rate and what became of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    /// Packets a second the generator reached.
    pub(crate) achieved_pps: f64,
    /// Copies delivered of those that were due, 0 to 1.
    pub(crate) delivered: f64,
}

/// The search's answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchResult {
    /// The highest offered rate that passed, in packets a second into the relay.
    pub(crate) ndr_pps: f64,
    /// Every step in order.
    pub(crate) steps: Vec<Step>,
    /// The generator was the limit: its full rate passed.
    pub(crate) generator_bound: bool,
}

/// The bracket is closed when its ends are this close.
const RESOLUTION: f64 = 1.04;
/// Steps at most, the flat-out one included.
const STEPS: usize = 9;

/// Searches with `offer`, which sends at a rate (flat out for `None`) and measures; a step passes
/// when its loss is at most `loss`.
pub(crate) fn search(
    loss: f64,
    mut offer: impl FnMut(Option<f64>) -> Result<Step>,
) -> Result<SearchResult> {
    let passes = |step: &Step| step.delivered >= 1.0 - loss;
    let flat = offer(None)?;
    let mut steps = vec![flat];
    if passes(&flat) {
        return Ok(SearchResult {
            ndr_pps: flat.achieved_pps,
            steps,
            generator_bound: true,
        });
    }
    let mut high = flat.achieved_pps;
    let mut best: Option<f64> = None;
    // The rate that gets through at full speed is near the limit of a datapath that does not collapse.
    let mut next = flat.achieved_pps * flat.delivered.max(0.02);
    while steps.len() < STEPS && best.is_none_or(|low| high / low > RESOLUTION) {
        let step = offer(Some(next))?;
        steps.push(step);
        if passes(&step) {
            best = Some(best.map_or(step.achieved_pps, |low| low.max(step.achieved_pps)));
        } else {
            high = high.min(step.achieved_pps);
        }
        next = match best {
            // Rising by a quarter finds the upper end quickly when the first guess was low.
            Some(low) => (low * high).sqrt().min(low * 1.25),
            None => next / 1.6,
        };
    }
    ensure!(
        best.is_some(),
        "packets were lost at every rate down to {:.0} pps",
        next * 1.6
    );
    Ok(SearchResult {
        ndr_pps: best.unwrap_or_default(),
        steps,
        generator_bound: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datapath that forwards up to `capacity` and drops the rest, behind a generator of 1 Mpps.
    fn ideal(capacity: f64) -> impl FnMut(Option<f64>) -> Result<Step> {
        move |rate| {
            let achieved_pps = rate.unwrap_or(1e6).min(1e6);
            Ok(Step {
                achieved_pps,
                delivered: (capacity / achieved_pps).min(1.0),
            })
        }
    }

    #[test]
    fn the_limit_is_found_from_below() {
        for capacity in [20e3, 150e3, 431e3, 950e3] {
            let found = search(1e-3, ideal(capacity)).unwrap();
            assert!(found.ndr_pps <= capacity * 1.001, "{found:?}");
            assert!(found.ndr_pps >= capacity * 0.93, "{capacity} {found:?}");
        }
    }

    #[test]
    fn a_generator_that_loses_nothing_is_the_limit() {
        let found = search(1e-3, ideal(2e6)).unwrap();
        assert!(found.generator_bound);
        assert_eq!(found.steps.len(), 1);
    }

    #[test]
    fn collapse_under_overload_is_searched_from_below() {
        // Livelock: the more is offered beyond 100 kpps, the less gets through.
        let mut offer = |rate: Option<f64>| {
            let achieved_pps = rate.unwrap_or(1e6);
            let through = if achieved_pps <= 100e3 {
                achieved_pps
            } else {
                1e3
            };
            Ok(Step {
                achieved_pps,
                delivered: through / achieved_pps,
            })
        };
        let found = search(1e-3, &mut offer).unwrap();
        assert!(found.ndr_pps <= 100e3 && found.ndr_pps > 10e3, "{found:?}");
    }

    #[test]
    fn a_datapath_that_always_loses_is_an_error() {
        let offer = |rate: Option<f64>| {
            Ok(Step {
                achieved_pps: rate.unwrap_or(1e6),
                delivered: 0.5,
            })
        };
        assert!(search(1e-3, offer).is_err());
    }
}
