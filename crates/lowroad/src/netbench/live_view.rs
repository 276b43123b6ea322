//! What is shown beside results: how long all tests will take, and how a test goes.
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

/// A line about all tests, which is printed once.
pub(super) struct Announcement(Option<String>);

impl Announcement {
    pub(super) fn new(plans: &[Plan], repeat: u16, json: bool) -> Self {
        Self((!json).then(|| announcement(plans, repeat)))
    }

    /// Prints it, unless it was printed before. A run that reaches no server only has its error to print.
    pub(super) fn print(&mut self) {
        if let Some(line) = self.0.take() {
            eprintln!("{line}");
        }
    }
}

fn announcement(plans: &[Plan], repeat: u16) -> String {
    let count = plans.len() * usize::from(repeat);
    let tests = if count == 1 { "test" } else { "tests" };
    let time: Duration = plans.iter().map(expected_time).sum();
    let time = text::rounded(time * u32::from(repeat));
    // A count of bytes ends a stream, and its duration is only the limit.
    let has_limit = plans.iter().any(|plan| plan.spec.bytes.is_some());
    let about = if has_limit { "at most" } else { "about" };
    format!("{count} {tests}  this takes {about} {time}")
}

/// How long a test takes, about: warm-up and window, and both once more under a load. A search for a rate can take more
/// steps than usual.
fn expected_time(plan: &Plan) -> Duration {
    let phases = if plan.load.is_some() { 2 } else { 1 };
    (plan.spec.warmup() + plan.spec.duration()) * phases
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
    use netbench::{LOAD_FLOWS, LoadDirection, LoadPlan, Options, Test};

    use super::*;

    #[test]
    fn announcement_has_the_time_of_all_tests() {
        let said = |tests: &[Test], options: Options, repeat| {
            announcement(&options.plans(tests).unwrap(), repeat)
        };
        let seconds = |seconds| Options {
            duration: Some(Duration::from_secs(seconds)),
            ..Options::default()
        };
        let tests = [Test::TcpRr, Test::UdpRr];
        // The warm-up is a tenth of the duration, and at most 1 s.
        assert_eq!(
            said(&tests[..1], seconds(10), 1),
            "1 test  this takes about 11 s"
        );
        assert_eq!(
            said(&tests, seconds(10), 3),
            "6 tests  this takes about 66 s"
        );
        let flows = Options {
            flows: vec![1, 8],
            ..seconds(600)
        };
        assert_eq!(said(&tests, flows, 1), "4 tests  this takes about 40 min");
        let load = Options {
            load: Some(LoadPlan {
                direction: LoadDirection::Both,
                flows: LOAD_FLOWS,
            }),
            ..seconds(10)
        };
        assert_eq!(said(&tests[1..], load, 1), "1 test  this takes about 22 s");
        let bytes = Options {
            bytes: Some(1_000_000),
            ..seconds(30)
        };
        assert_eq!(
            said(&[Test::TcpStream], bytes, 1),
            "1 test  this takes at most 30 s"
        );
    }

    #[test]
    fn sparkline_is_relative_to_most() {
        assert_eq!(sparkline(&[0.0, 50.0, 100.0]), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.0]), "▁▁");
        assert_eq!(sparkline(&[]), "");
    }
}
