//! `udp_rate`: the highest rate of datagrams of which hardly any is lost. It searches between a rate that holds and one
//! that does not. Sending as fast as possible says little: an overloaded receiver drops nearly everything.

use std::ops::ControlFlow;

use super::method::Method;
use super::{
    ETHERNET_PAYLOAD, Facts, MAX_LOSS, Quantity, Rate, Sizes, Test, Transport, udp_stream,
};
use crate::client::{Error, Progress, Session, Step, Watch, measure_flows};
use crate::outcome::Outcome;
use crate::spec::Spec;

/// Rates that differ by less than this share count as equal.
const TOLERANCE: f64 = 0.02;
/// A sender that stays below this share of a rate cannot reach it.
const MIN_SHARE: f64 = 0.98;
/// How often the rate that the search returns has held in a row.
const CONFIRMATIONS: u32 = 2;
/// If it fails to hold, the search goes back to this share of it, or to the rate that arrived if that is less, and searches
/// between the two, at most this often.
const BACKOFF: f64 = 0.9;
const MAX_RETURNS: u32 = 3;
/// Above a rate that holds, the search tries this share more, then grows it by the factor while rates hold.
const GROWTH: f64 = 2.0 * TOLERANCE;
const GROWTH_FACTOR: f64 = 4.0;
/// Each step takes this part of the test's duration, as most searches need about that many; a shorter one than the minimum
/// measures nothing.
const STEPS: u64 = 10;
const MIN_STEP_US: u64 = 50_000;
/// The fewest datagrams of a step: with fewer, a single one that is lost decides.
const MIN_DATAGRAMS: f64 = 20.0;
/// A search that needs more has another fault than its rate.
const MAX_STEPS: u32 = 100;

pub(super) static FACTS: Facts = Facts {
    quantity: Quantity::Transfer,
    transport: Transport::Datagrams,
    sizes: Sizes::Message {
        default: ETHERNET_PAYLOAD,
    },
    rate: Rate::None,
    single_flow: false,
    busy_poll: true,
};

pub(super) static METHOD: Method = Method::Search(search);

fn search(session: &mut Session, spec: &Spec, watch: Watch<'_>) -> Result<Outcome, Error> {
    let mut steps = Steps {
        session,
        spec,
        watch,
        last: None,
        number: 0,
    };
    // As fast as it goes: no rate is above this.
    let (fastest, mut outcome) = steps.measure(None)?;
    // A path that lets nothing through has no rate to look for.
    if !outcome.has_result() {
        outcome.spec = fitted(spec, &outcome);
        return Ok(outcome);
    }
    let lowest = MIN_DATAGRAMS * 1e6 / steps.length_us() as f64;
    let mut range = Range::new(&fastest, lowest);
    let (mut confirmations, mut failures) = (0, 0);
    while outcome.ended_early.is_none() && confirmations < CONFIRMATIONS {
        if steps.number >= MAX_STEPS {
            outcome.ended_early = Some(format!("no rate found in {MAX_STEPS} steps"));
            break;
        }
        let confirms = range.is_narrow();
        let rate = if confirms { range.low } else { range.next() };
        let (sample, measured) = steps.measure(Some(rate))?;
        match (sample.holds(), confirms) {
            (true, true) => confirmations += 1,
            (false, true) => {
                confirmations = 0;
                failures += 1;
                range.back_off(&sample, failures);
            }
            (_, false) => range.narrow(&sample),
        }
        outcome = measured;
        if !sample.holds() && rate <= lowest && outcome.ended_early.is_none() {
            let loss = sample.loss * 100.0;
            outcome.ended_early = Some(format!(
                "{loss:.1} % of {rate:.0} datagrams a second are lost, too: the path loses at any rate; measure it by udp_stream"
            ));
        }
    }
    outcome.spec = fitted(spec, &outcome);
    Ok(outcome)
}

/// The spec with the size that the datagrams had.
fn fitted(spec: &Spec, outcome: &Outcome) -> Spec {
    Spec {
        message: outcome.spec.message,
        ..spec.clone()
    }
}

/// The result of one step, in datagrams a second.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The rate of the step; none: as fast as it goes.
    target: Option<f64>,
    sent: f64,
    arrived: f64,
    loss: f64,
}

impl Sample {
    fn holds(&self) -> bool {
        self.loss <= MAX_LOSS
    }

    /// The next rate, after one that held before and now does not.
    fn back_off(&self, rate: f64) -> f64 {
        (rate * BACKOFF.min(1.0 - self.loss)).max(1.0)
    }
}

/// The range of rates that the highest one is in.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// No rate below this is tried.
    lowest: f64,
    low: f64,
    high: f64,
    /// The low rate has held at least once.
    held: bool,
    /// What arrived at the last rate, if it did not hold: the path carries about that.
    arrived: Option<f64>,
    growth: f64,
}

impl Range {
    fn new(fastest: &Sample, lowest: f64) -> Self {
        let high = fastest.sent.max(lowest);
        if fastest.holds() {
            return Self::of(lowest, high);
        }
        Self {
            // Of a flood less may arrive than of a stream that fits, so the range begins lower.
            low: (fastest.arrived / 2.0).clamp(lowest, high),
            held: false,
            arrived: Some(fastest.arrived),
            ..Self::of(lowest, high)
        }
    }

    /// Goes back from a rate that has held before and now does not. The next one is between the two, unless that has
    /// happened before: a path that others disturb has no highest rate that always holds.
    fn back_off(&mut self, sample: &Sample, failures: u32) {
        let high = self.low;
        let low = sample.back_off(high);
        *self = match failures {
            0..=MAX_RETURNS => Self {
                high,
                held: false,
                arrived: Some(sample.arrived),
                ..self.at(low)
            },
            _ => self.at(low),
        };
    }

    /// The range of one rate.
    fn at(&self, rate: f64) -> Self {
        Self::of(self.lowest, rate)
    }

    fn of(lowest: f64, rate: f64) -> Self {
        let rate = rate.max(lowest);
        Self {
            lowest,
            low: rate,
            high: rate,
            held: true,
            arrived: None,
            growth: GROWTH,
        }
    }

    fn is_narrow(&self) -> bool {
        self.high <= self.low * (1.0 + TOLERANCE)
    }

    /// The next rate to try: the one that arrived last, or a little more than one that holds, or the middle.
    fn next(&self) -> f64 {
        let middle = (self.low * self.high).sqrt();
        let within = self.low..self.high / (1.0 + TOLERANCE / 2.0);
        match self.arrived {
            Some(arrived) if within.contains(&arrived) => arrived,
            _ if self.held => middle.min(self.low * (1.0 + self.growth)),
            _ => middle,
        }
    }

    fn narrow(&mut self, sample: &Sample) {
        let target = sample.target.unwrap_or(sample.sent);
        if !sample.holds() {
            self.high = target;
            self.arrived = Some(sample.arrived);
            self.growth = GROWTH;
            // Even the low rate may be too high, unless it has held.
            if self.is_narrow() && !self.held {
                self.low = (self.low / 2.0).max(self.lowest);
            }
        } else if sample.sent < target * MIN_SHARE {
            // The sender is the limit.
            *self = self.at(sample.sent);
        } else {
            if self.held {
                self.growth *= GROWTH_FACTOR;
            }
            self.low = target;
            self.held = true;
            self.arrived = None;
        }
    }
}

struct Steps<'a> {
    session: &'a mut Session,
    spec: &'a Spec,
    watch: Watch<'a>,
    last: Option<Step>,
    number: u32,
}

impl Steps<'_> {
    /// The length of a step's window, in microseconds.
    fn length_us(&self) -> u64 {
        (self.spec.duration_us / STEPS).max(MIN_STEP_US)
    }

    fn measure(&mut self, target: Option<f64>) -> Result<(Sample, Outcome), Error> {
        let spec = Spec {
            test: Test::UdpStream,
            rate: target,
            duration_us: self.length_us(),
            warmup_us: self.spec.warmup_us / STEPS,
            // Steps have their own progress.
            interval_us: None,
            ..self.spec.clone()
        };
        let step = self.last;
        let watch = &mut self.watch;
        let mut with_step = |progress: &Progress| -> ControlFlow<()> {
            watch(&Progress {
                step,
                ..progress.clone()
            })
        };
        let outcome = measure_flows(self.session, &spec, udp_stream::client, &mut with_step)?;
        let per_s = |bits: f64| bits / (f64::from(outcome.spec.message) * 8.0);
        let transfer = outcome.transfer;
        let sample = Sample {
            target,
            sent: transfer.map_or(0.0, |transfer| per_s(transfer.offered_bits_per_s)),
            arrived: transfer.map_or(0.0, |transfer| per_s(transfer.bits_per_s)),
            loss: transfer.and_then(|transfer| transfer.loss).unwrap_or(1.0),
        };
        self.number += 1;
        self.last = Some(Step {
            number: self.number,
            rate: target.unwrap_or(sample.sent),
            loss: sample.loss,
        });
        Ok((sample, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that loses what is above `most`, and more, and a sender that reaches `fastest`.
    fn path(most: f64, fastest: f64, carried: f64) -> impl Fn(Option<f64>) -> Sample {
        move |target| {
            let sent = target.unwrap_or(fastest).min(fastest);
            let arrived = if sent <= most { sent } else { most * carried };
            Sample {
                target,
                sent,
                arrived,
                loss: 1.0 - arrived / sent,
            }
        }
    }

    fn searched(path: impl Fn(Option<f64>) -> Sample) -> (f64, u32) {
        let mut range = Range::new(&path(None), 1.0);
        let mut steps = 0;
        while !range.is_narrow() {
            let rate = range.next();
            assert!(
                (range.low..=range.high).contains(&rate),
                "{rate}: {range:?}"
            );
            range.narrow(&path(Some(rate)));
            steps += 1;
            assert!(steps < MAX_STEPS, "{range:?}");
        }
        (range.low, steps)
    }

    #[test]
    fn search_finds_highest_rate() {
        for carried in [0.01, 0.5, 0.9, 0.99, 1.0] {
            for most in [1.0, 17.0, 1_000.0, 123_456.0, 9e5] {
                let (found, steps) = searched(path(most, 1e6, carried));
                assert!(found <= most && found * 1.03 >= most, "{most}: {found}");
                assert!(steps <= 20, "{most}, {carried}: {steps}");
            }
        }
    }

    #[test]
    fn arrivals_shorten_search() {
        for fastest in [1.1, 1.5, 3.0, 20.0] {
            let (found, steps) = searched(path(1e5, 1e5 * fastest, 1.0));
            assert!(found <= 1e5 && found * 1.03 >= 1e5, "{found}");
            assert!(steps <= 4, "{fastest}: {steps}");
        }
        // Where a flood brings the path to less than it can, it takes longer.
        assert!(searched(path(1e5, 2e5, 0.5)).1 <= 12);
    }

    #[test]
    fn back_off_follows_loss() {
        let lost = |loss| Sample {
            target: Some(1000.0),
            sent: 1000.0,
            arrived: 1000.0 * (1.0 - loss),
            loss,
        };
        assert_eq!(lost(0.002).back_off(1000.0), 900.0);
        assert_eq!(lost(0.4).back_off(1000.0), 600.0);
        assert_eq!(lost(1.0).back_off(1000.0), 1.0);
    }

    #[test]
    fn sender_limit_needs_no_search() {
        assert_eq!(searched(path(1e9, 5e5, 0.5)), (5e5, 0));
    }
}
