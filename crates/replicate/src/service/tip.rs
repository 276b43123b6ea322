//! The heads of logs, for parts that read them. They are read on demand.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use crate::log::Error;
use crate::record::Entry;
use crate::ship::Source;

/// The distance between stored times of records, in nanoseconds.
const APART: u64 = 10_000_000;
/// The number of stored times at which they are thinned out. Their distance then is this fraction
/// of their age. Ages from 10 s to a year take about 3800.
const MARKS: usize = 8192;
const PART: u64 = 256;

#[derive(Debug, Default)]
pub(super) struct Tips(BTreeMap<PathBuf, Tip>);

/// The head of a log.
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
    /// Returns `None` for a log that cannot be read now.
    pub(super) fn of(&mut self, log: &Path) -> Option<&Tip> {
        let read = match self.0.remove(log) {
            Some(mut tip) => tip.follow().map(|()| tip),
            None => Tip::open(log),
        };
        // The log was compacted or replaced since. Its head does not depend on the former one.
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
            // A time before the last one is stored, too: the source's clock was set back.
            if record.at_ns < last || record.at_ns >= last + APART {
                self.marks.push_back((record.number, record.at_ns));
            }
            if self.marks.len() > MARKS {
                self.thin();
            }
        }
        Ok(())
    }

    /// Removes more of the older times than of the newer ones. The oldest stays.
    fn thin(&mut self) {
        let newest = self.marks.back().map_or(0, |(_, at_ns)| *at_ns);
        let mut kept: Option<u64> = None;
        self.marks.retain(|(_, at_ns)| {
            let apart = newest.saturating_sub(*at_ns) / PART;
            let stays = kept.is_none_or(|kept| kept.abs_diff(*at_ns) >= apart);
            if stays {
                kept = Some(*at_ns);
            }
            stays
        });
        // Reached only if the source's clock is set repeatedly.
        while self.marks.len() > MARKS {
            self.marks.pop_front();
        }
    }

    /// The age of the oldest epoch after this record in milliseconds, or 0 if there is none.
    pub(super) fn lag_ms(&self, number: u64, now_ns: u64) -> u64 {
        let behind = self.marks.iter().find(|(record, _)| *record > number);
        let oldest = match behind {
            Some((_, at_ns)) => *at_ns,
            // The epoch is within the distance of the last stored time.
            None if self.epoch_record > number => self.marks.back().map_or(now_ns, |(_, at)| *at),
            None => return 0,
        };
        now_ns.saturating_sub(oldest) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Durability, Options, Writer};
    use crate::patterns::Patterns;
    use crate::record::File;

    const ROOT: File = File {
        inode: 2,
        generation: 0,
    };

    #[test]
    fn how_old_what_waits_is_stays_known_however_much_follows() {
        let second = 1_000_000_000;
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            durability: Durability::OnRequest,
            ..Options::default()
        };
        let mut writer = Writer::open(folder.path(), options).unwrap();
        writer.append(0, Entry::Start { root: ROOT }).unwrap();
        // One hour of them.
        let every = second / 20;
        let last = 3600 * 20;
        for number in 1..=last {
            let at_ns = number * every;
            writer.append(at_ns, Entry::Epoch { number }).unwrap();
        }
        let now = last * every;
        let tip = Tip::open(folder.path()).unwrap();
        assert!(tip.marks.len() <= MARKS);
        for record in [1, 2, last / 2, last - 100, last] {
            // The epoch with that number is in the next record.
            let age = (now - record * every) / 1_000_000;
            let lag = tip.lag_ms(record, now);
            assert!(
                lag <= age && lag >= age - age / 100,
                "{record}: {lag} of {age}"
            );
        }
        assert_eq!(tip.lag_ms(last + 1, now), 0);
    }

    #[test]
    fn a_log_is_as_far_as_its_last_epoch_is_whichever_segment_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(folder.path(), Options::default()).unwrap();
        writer.append(0, Entry::Start { root: ROOT }).unwrap();
        writer.append(1, Entry::Epoch { number: 1 }).unwrap();
        writer.seal().unwrap();
        writer.append(2, Entry::Epoch { number: 2 }).unwrap();
        // One segment without an epoch, and one without any record.
        writer.seal().unwrap();
        writer
            .append(3, Entry::Patterns(Patterns::default()))
            .unwrap();
        writer.seal().unwrap();
        let tip = Tip::open(folder.path()).unwrap();
        assert_eq!((tip.number, tip.epoch_record), (4, 3));
    }

    #[test]
    fn the_oldest_that_waits_is_known_although_the_clock_was_set_back() {
        let second = 1_000_000_000;
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(folder.path(), Options::default()).unwrap();
        writer.append(second, Entry::Start { root: ROOT }).unwrap();
        for (number, at) in [(1, 100), (2, 101), (3, 40), (4, 41)] {
            writer.append(at * second, Entry::Epoch { number }).unwrap();
        }
        let tip = Tip::open(folder.path()).unwrap();
        let lag = |record| tip.lag_ms(record, 45 * second);
        assert_eq!([lag(3), lag(4), lag(5)], [5000, 4000, 0]);
    }
}
