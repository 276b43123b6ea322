//! The line on a terminal that shows how a test goes.
#![expect(clippy::print_stderr, reason = "the live view")]

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use netbench::client::Progress;
use netbench::{Interval, Plan};

use super::text;

/// The interval of updates.
const INTERVAL: Duration = Duration::from_millis(250);
/// The intervals in the sparkline.
const HISTORY: usize = 24;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Has tests report intervals for the view, where there is a terminal to show it.
pub(super) fn add_intervals(plans: &mut [Plan]) {
    if !io::stderr().is_terminal() {
        return;
    }
    for plan in plans {
        if plan.spec.duration() >= INTERVAL {
            plan.spec.interval_us = u64::try_from(INTERVAL.as_micros()).ok();
        }
    }
}

/// Shows rates and latencies while a test runs.
pub(super) struct LiveView<'a> {
    plan: &'a Plan,
    terminal: bool,
    shown: Option<Instant>,
    /// The last interval of each direction, and the rates of those before.
    intervals: Vec<Interval>,
    rates: Vec<f64>,
}

impl<'a> LiveView<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            terminal: io::stderr().is_terminal(),
            shown: None,
            intervals: Vec::new(),
            rates: Vec::new(),
        }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        if !self.terminal {
            return;
        }
        if let Some(interval) = &progress.interval {
            self.add(interval);
        }
        if self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            self.shown = Some(Instant::now());
            eprint!("\r\x1b[K{}", self.line(progress));
        }
    }

    pub(super) fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn add(&mut self, interval: &Interval) {
        self.intervals
            .retain(|it| it.direction != interval.direction);
        self.intervals.push(interval.clone());
        if self.rates.len() == HISTORY {
            self.rates.remove(0);
        }
        self.rates.push(text::rate(self.plan, interval));
    }

    fn line(&self, progress: &Progress) -> String {
        let mut line = text::progress(self.plan, progress);
        if progress.step.is_none() && !self.intervals.is_empty() {
            line += "  ";
            line += &sparkline(&self.rates);
            for interval in &self.intervals {
                line += "  ";
                line += &text::figures(self.plan, interval);
            }
        }
        line
    }
}

/// Bars from 0 to the largest value.
fn sparkline(values: &[f64]) -> String {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bar = |value: &f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 7"
        )]
        let at = (value / most * 7.0).round() as usize;
        BARS.get(at).copied().unwrap_or(' ')
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_is_relative_to_most() {
        assert_eq!(sparkline(&[0.0, 50.0, 100.0]), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.0]), "▁▁");
        assert_eq!(sparkline(&[]), "");
    }
}
