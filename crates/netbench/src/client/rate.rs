//! The highest rate of datagrams of which hardly any is lost: a search between a rate that holds and one that does
//! not. To send as fast as one can says little: a receiver that is overwhelmed drops nearly all.

use std::ops::ControlFlow;

use super::{Error, Progress, Session, Watch, run};
use crate::outcome::Outcome;
use crate::spec::{Spec, Test};

/// Of the datagrams that are sent: more than this is too much.
pub const MOST_LOSS: f64 = 1e-3;
/// Rates that differ by less than this share are the same.
const NEAR: f64 = 0.02;
/// A sender that stays below this share of a rate cannot reach it.
const REACHED: f64 = 0.98;
/// The rate that was found has to hold so often in a row.
const CONFIRMED: u32 = 2;
/// Where it does not, this share of it is tried, or what arrived if that is less. To search once more would take long
/// where any rate is lost now and then: a path that others disturb has no highest rate that always holds.
const BACK: f64 = 0.9;
/// Above a rate that holds, this share more is tried; then so many times as much more, as long as it holds.
const AHEAD: f64 = 2.0 * NEAR;
const FASTER: f64 = 4.0;
/// Each try takes this part of the time that the search is given, which is about what it needs; it loses
/// its meaning below the shortest.
const TRIES: u64 = 10;
const SHORTEST_US: u64 = 50_000;
/// By then something else is wrong than the rate.
const MOST_STEPS: u32 = 100;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub number: u32,
    /// Datagrams a second.
    pub rate: f64,
    pub loss: f64,
}

pub(super) fn search(
    session: &mut Session,
    spec: &Spec,
    watch: Watch<'_>,
) -> Result<Outcome, Error> {
    let mut tries = Tries {
        session,
        spec,
        watch,
        last: None,
        number: 0,
    };
    // As fast as it goes: no rate is above this.
    let (fastest, mut outcome) = tries.at(None)?;
    let mut range = Range::new(&fastest);
    let mut confirmed = 0;
    while outcome.ended_early.is_none() && confirmed < CONFIRMED {
        if tries.number >= MOST_STEPS {
            outcome.ended_early = Some(format!("no rate found in {MOST_STEPS} steps"));
            break;
        }
        let confirms = range.is_narrow();
        let rate = if confirms { range.low } else { range.next() };
        let (found, tried) = tries.at(Some(rate))?;
        match (found.holds(), confirms) {
            (true, true) => confirmed += 1,
            (false, true) => {
                confirmed = 0;
                range = Range::of(found.back(range.low));
            }
            (_, false) => range.narrow(&found),
        }
        outcome = tried;
    }
    outcome.spec = spec.clone();
    Ok(outcome)
}

/// What a try came to.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// That was asked for; none: as fast as it goes.
    asked: Option<f64>,
    /// Datagrams a second that were sent, and that arrived.
    sent: f64,
    arrived: f64,
    loss: f64,
}

impl Found {
    fn holds(&self) -> bool {
        self.loss <= MOST_LOSS
    }

    /// The rate after one that did not hold once more.
    fn back(&self, rate: f64) -> f64 {
        (rate * BACK.min(1.0 - self.loss)).max(1.0)
    }
}

/// Rates between which the one that is looked for is.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: f64,
    high: f64,
    /// The low one has held, once at least.
    held: bool,
    /// What arrived of the last one, which did not hold: a path that loses the rest carries about that.
    arrived: Option<f64>,
    ahead: f64,
}

impl Range {
    fn new(fastest: &Found) -> Self {
        let high = fastest.sent.max(1.0);
        if fastest.holds() {
            return Self::of(high);
        }
        Self {
            // What arrives of a flood may be less than what arrives of a stream: the range may begin lower.
            low: (fastest.arrived / 2.0).clamp(1.0, high),
            held: false,
            arrived: Some(fastest.arrived),
            ..Self::of(high)
        }
    }

    fn of(rate: f64) -> Self {
        Self {
            low: rate,
            high: rate,
            held: true,
            arrived: None,
            ahead: AHEAD,
        }
    }

    fn is_narrow(&self) -> bool {
        self.high <= self.low * (1.0 + NEAR)
    }

    /// What is tried next: what the last try says that the path carries, or a little more than what holds, or the middle.
    fn next(&self) -> f64 {
        let middle = (self.low * self.high).sqrt();
        let within = self.low..self.high / (1.0 + NEAR / 2.0);
        match self.arrived {
            Some(arrived) if within.contains(&arrived) => arrived,
            _ if self.held => middle.min(self.low * (1.0 + self.ahead)),
            _ => middle,
        }
    }

    fn narrow(&mut self, found: &Found) {
        let asked = found.asked.unwrap_or(found.sent);
        if !found.holds() {
            self.high = asked;
            self.arrived = Some(found.arrived);
            self.ahead = AHEAD;
            // Even the lowest may be too much, unless it has held.
            if self.is_narrow() && !self.held {
                self.low = (self.low / 2.0).max(1.0);
            }
        } else if found.sent < asked * REACHED {
            // The sender is the limit.
            *self = Self::of(found.sent);
        } else {
            if self.held {
                self.ahead *= FASTER;
            }
            self.low = asked;
            self.held = true;
            self.arrived = None;
        }
    }
}

struct Tries<'a> {
    session: &'a mut Session,
    spec: &'a Spec,
    watch: Watch<'a>,
    last: Option<Step>,
    number: u32,
}

impl Tries<'_> {
    fn at(&mut self, rate: Option<f64>) -> Result<(Found, Outcome), Error> {
        let spec = Spec {
            test: Test::UdpStream,
            rate,
            duration_us: (self.spec.duration_us / TRIES).max(SHORTEST_US),
            warmup_us: self.spec.warmup_us / TRIES,
            ..self.spec.clone()
        };
        let step = self.last;
        let watch = &mut self.watch;
        let mut told =
            |progress: &Progress| -> ControlFlow<()> { watch(&Progress { step, ..*progress }) };
        let outcome = run::measure(self.session, &spec, &mut told)?;
        let a_second = |bits: f64| bits / (f64::from(spec.message) * 8.0);
        let transfer = outcome.transfer;
        let found = Found {
            asked: rate,
            sent: transfer.map_or(0.0, |it| a_second(it.offered_bits_per_s)),
            arrived: transfer.map_or(0.0, |it| a_second(it.bits_per_s)),
            loss: transfer.and_then(|it| it.loss).unwrap_or(1.0),
        };
        self.number += 1;
        self.last = Some(Step {
            number: self.number,
            rate: rate.unwrap_or(found.sent),
            loss: found.loss,
        });
        Ok((found, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that loses what is above `most`, and more, and a sender that reaches `fastest`.
    fn path(most: f64, fastest: f64, carried: f64) -> impl Fn(Option<f64>) -> Found {
        move |asked| {
            let sent = asked.unwrap_or(fastest).min(fastest);
            let arrived = if sent <= most { sent } else { most * carried };
            Found {
                asked,
                sent,
                arrived,
                loss: 1.0 - arrived / sent,
            }
        }
    }

    fn searched(path: impl Fn(Option<f64>) -> Found) -> (f64, u32) {
        let mut range = Range::new(&path(None));
        let mut steps = 0;
        while !range.is_narrow() {
            let rate = range.next();
            assert!(
                (range.low..=range.high).contains(&rate),
                "{rate}: {range:?}"
            );
            range.narrow(&path(Some(rate)));
            steps += 1;
            assert!(steps < MOST_STEPS, "{range:?}");
        }
        (range.low, steps)
    }

    #[test]
    fn the_search_ends_at_the_highest_rate_that_holds() {
        for carried in [0.01, 0.5, 0.9, 0.99, 1.0] {
            for most in [1.0, 17.0, 1_000.0, 123_456.0, 9e5] {
                let (found, steps) = searched(path(most, 1e6, carried));
                assert!(found <= most && found * 1.03 >= most, "{most}: {found}");
                assert!(steps <= 20, "{most}, {carried}: {steps}");
            }
        }
    }

    #[test]
    fn what_arrives_says_where_to_look() {
        for fastest in [1.1, 1.5, 3.0, 20.0] {
            let (found, steps) = searched(path(1e5, 1e5 * fastest, 1.0));
            assert!(found <= 1e5 && found * 1.03 >= 1e5, "{found}");
            assert!(steps <= 4, "{fastest}: {steps}");
        }
        // Where a flood brings the path to less than it can, it takes longer.
        assert!(searched(path(1e5, 2e5, 0.5)).1 <= 12);
    }

    #[test]
    fn a_rate_that_does_not_hold_any_more_is_left_by_as_much_as_was_lost() {
        let lost = |loss| Found {
            asked: Some(1000.0),
            sent: 1000.0,
            arrived: 1000.0 * (1.0 - loss),
            loss,
        };
        assert_eq!(lost(0.002).back(1000.0), 900.0);
        assert_eq!(lost(0.4).back(1000.0), 600.0);
        assert_eq!(lost(1.0).back(1000.0), 1.0);
    }

    #[test]
    fn a_sender_that_is_the_limit_is_found_at_once() {
        assert_eq!(searched(path(1e9, 5e5, 0.5)), (5e5, 0));
    }
}
