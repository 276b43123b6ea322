//! How far logs are, for parts that read them: looked up when somebody asks.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use crate::log::Error;
use crate::record::Entry;
use crate::ship::Source;

/// Times of records are kept this far apart, in nanoseconds.
const APART: u64 = 10_000_000;
/// As many of them; the oldest are forgotten.
const MARKS: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Tips(BTreeMap<PathBuf, Tip>);

/// How far a log is.
#[derive(Debug)]
pub(super) struct Tip {
    source: Source,
    /// The last record.
    pub(super) number: u64,
    /// The record of the last epoch.
    pub(super) epoch_record: u64,
    /// Records of epochs, and when the source wrote them.
    marks: VecDeque<(u64, u64)>,
}

impl Tips {
    /// None for a log that cannot be read now.
    pub(super) fn of(&mut self, log: &Path) -> Option<&Tip> {
        let read = match self.0.remove(log) {
            Some(mut tip) => tip.follow().map(|()| tip),
            None => Tip::open(log),
        };
        // Compacted or replaced since: how far it is now does not depend on how far it was.
        let tip = read.or_else(|_| Tip::open(log)).ok()?;
        Some(self.0.entry(log.to_owned()).or_insert(tip))
    }
}

impl Tip {
    fn open(log: &Path) -> Result<Self, Error> {
        let mut tip = Self {
            source: Source::late(log)?,
            number: 0,
            epoch_record: 0,
            marks: VecDeque::new(),
        };
        tip.follow()?;
        Ok(tip)
    }

    fn follow(&mut self) -> Result<(), Error> {
        while let Some(record) = self.source.read()? {
            self.number = record.number;
            if !matches!(record.entry, Entry::Epoch { .. }) {
                continue;
            }
            self.epoch_record = record.number;
            let last = self.marks.back().map_or(0, |(_, at_ns)| *at_ns);
            // Behind the last one, too: somebody has set the source's clock.
            if record.at_ns < last || record.at_ns >= last + APART {
                self.marks.push_back((record.number, record.at_ns));
            }
            if self.marks.len() > MARKS {
                self.marks.pop_front();
            }
        }
        Ok(())
    }

    /// The age of the oldest epoch behind this record, in milliseconds; 0 if there is none.
    pub(super) fn lag_ms(&self, number: u64, now_ns: u64) -> u64 {
        let behind = self.marks.iter().find(|(record, _)| *record > number);
        let oldest = match behind {
            Some((_, at_ns)) => *at_ns,
            // Within what is kept apart.
            None if self.epoch_record > number => self.marks.back().map_or(now_ns, |(_, at)| *at),
            None => return 0,
        };
        now_ns.saturating_sub(oldest) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Options, Writer};
    use crate::record::File;

    #[test]
    fn the_oldest_that_waits_is_known_although_the_clock_was_set_back() {
        let second = 1_000_000_000;
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(folder.path(), Options::default()).unwrap();
        let root = File {
            inode: 2,
            generation: 0,
        };
        writer.append(second, Entry::Start { root }).unwrap();
        for (number, at) in [(1, 100), (2, 101), (3, 40), (4, 41)] {
            writer.append(at * second, Entry::Epoch { number }).unwrap();
        }
        let tip = Tip::open(folder.path()).unwrap();
        let lag = |record| tip.lag_ms(record, 45 * second);
        assert_eq!([lag(3), lag(4), lag(5)], [5000, 4000, 0]);
    }
}
