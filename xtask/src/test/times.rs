//! How long tests took, and how much of a CPU: a file of the repository, by which tests begin.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result};

const FILE: &str = "xtask/times.tsv";
/// Shorter tests are left out: their order hardly matters, and the file stays small.
const MIN_S: f64 = 0.5;
/// In the place of CPU seconds that were never measured.
const UNKNOWN: &str = "-";

/// What a run of a test took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    /// Of it and of the processes that it waited for; none where it was never measured.
    pub(super) cpu_seconds: Option<f64>,
}

/// Costs by a test's repository-wide name.
#[derive(Debug, Default)]
pub(super) struct Times(BTreeMap<String, Cost>);

impl Cost {
    pub(super) fn new(took: Duration, cpu: Duration) -> Self {
        Self {
            seconds: took.as_secs_f64(),
            cpu_seconds: Some(cpu.as_secs_f64()),
        }
    }

    /// How many CPUs the test kept busy on average.
    pub(super) fn cpus(self) -> Option<f64> {
        Some(self.cpu_seconds? / self.seconds.max(MIN_S))
    }
}

impl Times {
    /// The remembered times; without the file, none.
    pub(super) fn load() -> Result<Self> {
        match fs::read_to_string(FILE) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).context(FILE),
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let line = |(number, line): (usize, &str)| {
            let expected = || format!("{FILE}:{}: seconds, CPU seconds, a name", number + 1);
            let mut columns = line.splitn(3, '\t');
            let mut column = || columns.next().with_context(expected);
            let [seconds, cpu_seconds, name] = [column()?, column()?, column()?];
            let known = Some(cpu_seconds).filter(|column| *column != UNKNOWN);
            let cost = Cost {
                seconds: seconds.parse().with_context(expected)?,
                cpu_seconds: known.map(str::parse).transpose().with_context(expected)?,
            };
            Ok((name.to_owned(), cost))
        };
        let times: Result<_> = text.lines().enumerate().map(line).collect();
        times.map(Self)
    }

    pub(super) fn cost(&self, test: &str) -> Option<Cost> {
        self.0.get(test).copied()
    }

    /// The seconds that a test of unknown length counts for, if `tests` tests run: short tests are not
    /// in the file, and count as nothing.
    pub(super) fn average(&self, tests: usize) -> f64 {
        let count = u32::try_from(tests.max(1)).unwrap_or(u32::MAX);
        self.0.values().map(|cost| cost.seconds).sum::<f64>() / f64::from(count)
    }

    /// Replaces the costs of the tests that ran.
    pub(super) fn update(&mut self, ran: impl IntoIterator<Item = (String, Cost)>) {
        for (name, cost) in ran {
            if cost.seconds > MIN_S {
                self.0.insert(name, cost);
            } else {
                self.0.remove(&name);
            }
        }
    }

    /// Drops tests that no longer exist.
    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| exists(name));
    }

    pub(super) fn save(&self) -> Result<()> {
        fs::write(FILE, self.text()).context(FILE)
    }

    fn text(&self) -> String {
        let mut tests: Vec<_> = self.0.iter().collect();
        tests.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        tests.iter().fold(String::new(), |mut text, (name, cost)| {
            let seconds = cost.seconds;
            let cpu_seconds = cost.cpu_seconds.map(|seconds| format!("{seconds:.1}"));
            let cpu_seconds = cpu_seconds.as_deref().unwrap_or(UNKNOWN);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{seconds:.1}\t{cpu_seconds}\t{name}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tests_are_forgotten() {
        let text = "3.0\t1.0\tsys a\n2.0\t-\tsys b\n1.0\t0.0\tsys c\n";
        let mut times = Times::parse(text).unwrap();
        let cost = |seconds| Cost {
            seconds,
            cpu_seconds: Some(0.1),
        };
        times.update([
            ("sys a".to_owned(), cost(0.1)),
            ("sys d".to_owned(), cost(7.0)),
        ]);
        times.retain(|name| name != "sys c");
        assert_eq!(times.text(), "7.0\t0.1\tsys d\n2.0\t-\tsys b\n");
        assert!(Times::parse("sys a\n").is_err());
        assert!(Times::parse("1.0\tsys a\n").is_err());
    }
}
