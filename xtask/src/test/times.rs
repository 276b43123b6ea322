//! How long tests took: a file of the repository, by which the longest begin first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result};

const FILE: &str = "xtask/times.tsv";
/// Shorter tests are left out: their order hardly matters, and the file stays small.
const MIN_S: f64 = 0.5;

/// Seconds by a test's repository-wide name.
#[derive(Debug, Default)]
pub(super) struct Times(BTreeMap<String, f64>);

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
            let (seconds, name) = line
                .split_once('\t')
                .with_context(|| format!("{FILE}:{}: seconds, a tab, a name", number + 1))?;
            let seconds = seconds
                .parse()
                .with_context(|| format!("{FILE}:{}: {seconds}", number + 1))?;
            Ok((name.to_owned(), seconds))
        };
        let times: Result<_> = text.lines().enumerate().map(line).collect();
        times.map(Self)
    }

    pub(super) fn seconds(&self, test: &str) -> Option<f64> {
        self.0.get(test).copied()
    }

    /// The seconds that a test of unknown length counts for, if `tests` tests run: short tests are not
    /// in the file, and count as nothing.
    pub(super) fn average(&self, tests: usize) -> f64 {
        let count = u32::try_from(tests.max(1)).unwrap_or(u32::MAX);
        self.0.values().sum::<f64>() / f64::from(count)
    }

    /// Replaces the times of the tests that ran.
    pub(super) fn update(&mut self, ran: impl IntoIterator<Item = (String, Duration)>) {
        for (name, took) in ran {
            let seconds = took.as_secs_f64();
            if seconds > MIN_S {
                self.0.insert(name, seconds);
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
        tests.sort_by(|a, b| b.1.total_cmp(a.1));
        tests.iter().fold(String::new(), |mut text, (name, took)| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{took:.1}\t{name}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tests_are_forgotten() {
        let mut times = Times::parse("3.0\tsys a\n2.0\tsys b\n1.0\tsys c\n").unwrap();
        times.update([
            ("sys a".to_owned(), Duration::from_millis(100)),
            ("sys d".to_owned(), Duration::from_secs(7)),
        ]);
        times.retain(|name| name != "sys c");
        assert_eq!(times.text(), "7.0\tsys d\n2.0\tsys b\n");
        assert!(Times::parse("sys a\n").is_err());
    }
}
