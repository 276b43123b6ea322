//! The record of a run on disk: appended load by load of each block, so that an interruption loses the
//! trials of one load.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use report::record::{Header, Skip, Trial};
use report::{Record as Written, Writer};

use crate::BadInput;

/// A record being written.
#[derive(Debug)]
pub(crate) struct Record {
    writer: Writer,
    pub(crate) header: Header,
    done: CompleteBlocks,
}

impl Record {
    /// Starts a record in `folder`.
    pub(crate) fn begin(folder: &Path, header: Header) -> Result<Self> {
        let path = path(folder);
        if path.exists() {
            let what = "exists; add --resume to continue it, or choose another --out";
            return Err(BadInput(format!("{} {what}", path.display())).into());
        }
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        Ok(Self {
            writer: Writer::create(&path, &header)?,
            header,
            done: CompleteBlocks::default(),
        })
    }

    /// Continues the record in `folder`, each load after its last complete block.
    pub(crate) fn resume(folder: &Path) -> Result<Self> {
        let (writer, written) =
            Writer::resume(&path(folder)).map_err(|error| BadInput(error.to_string()))?;
        Ok(Self {
            writer,
            done: CompleteBlocks::of(&written),
            header: written.header,
        })
    }

    /// Appends the trials of a block under one load.
    pub(crate) fn section(&mut self, load: &str, trials: Vec<Trial>) -> Result<()> {
        for trial in trials {
            self.writer.trial(trial)?;
        }
        *self.done.0.entry(load.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Has an arm run no further, for this reason.
    pub(crate) fn give_up(&mut self, skip: Skip) -> Result<()> {
        self.writer.skip(skip.clone())?;
        self.header.skipped.push(skip);
        Ok(())
    }

    /// How many blocks are complete under every load.
    pub(crate) fn blocks(&self) -> usize {
        self.done.blocks(&self.header)
    }

    /// How many of a load's blocks are complete.
    pub(crate) fn of_load(&self, load: &str) -> usize {
        self.done.of_load(load)
    }

    /// The block that is next, and the loads that run in it; none when all is done.
    pub(crate) fn next(&self) -> Option<(usize, BTreeSet<String>)> {
        self.done.next(&self.header)
    }
}

/// For each load, the number of complete blocks.
#[derive(Debug, Default)]
struct CompleteBlocks(BTreeMap<String, usize>);

impl CompleteBlocks {
    fn of(written: &Written) -> Self {
        let header = &written.header;
        let blocks = |load: &String| {
            let of_block = |block: &usize| {
                let trials = written.trials.iter();
                let trials = trials.filter(move |t| t.block == *block && t.load == *load);
                trials.collect::<Vec<_>>()
            };
            let complete = (0..)
                .take_while(|block| is_complete(header, load, &of_block(block)))
                .count();
            (load.clone(), complete)
        };
        // Where nothing is expected, all blocks without end would be complete.
        let loads = header.loads.iter().filter(|load| any(header, load));
        Self(loads.map(blocks).collect())
    }

    fn of_load(&self, load: &str) -> usize {
        self.0.get(load).copied().unwrap_or(0)
    }

    fn blocks(&self, header: &Header) -> usize {
        let loads = header.loads.iter().filter(|load| any(header, load));
        loads.map(|load| self.of_load(load)).min().unwrap_or(0)
    }

    fn next(&self, header: &Header) -> Option<(usize, BTreeSet<String>)> {
        let left = |load: &&String| any(header, load) && self.of_load(load) < header.blocks;
        let loads: Vec<&String> = header.loads.iter().filter(left).collect();
        let next = loads.iter().map(|load| self.of_load(load)).min()?;
        let due = loads.into_iter().filter(|load| self.of_load(load) == next);
        Some((next, due.cloned().collect()))
    }
}

/// Whether anything runs under a load.
fn any(header: &Header, load: &str) -> bool {
    expected(header, load).next().is_some()
}

/// The trials under a load in each block, without those of arms that were given up.
fn expected<'a>(header: &'a Header, load: &'a str) -> impl Iterator<Item = (&'a str, u8)> {
    let runs = header.runs(load);
    runs.filter(|(arm, _)| header.given_up(arm).is_none())
}

fn is_complete(header: &Header, load: &str, trials: &[&Trial]) -> bool {
    expected(header, load).all(|(arm, runs)| {
        let ran = |repeat| trials.iter().any(|t| t.arm == arm && t.repeat == repeat);
        (0..runs).all(ran)
    })
}

/// Whether the record in `folder` has trials left to run.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn unfinished(folder: &Path) -> Result<bool> {
    let written = Written::read(&path(folder))?;
    Ok(CompleteBlocks::of(&written).next(&written.header).is_some())
}

fn path(folder: &Path) -> PathBuf {
    folder.join("record.jsonl")
}

/// Now, as RFC 3339 with nanoseconds in UTC.
pub fn timestamp() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    rfc3339(now.as_secs(), now.subsec_nanos())
}

/// Civil date from days since 1970 (Howard Hinnant's algorithm for the proleptic calendar).
fn rfc3339(seconds: u64, nanos: u32) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(load: &str, block: usize, (arm, repeat): (&str, u8), flags: &[&str]) -> Trial {
        serde_json::from_value(serde_json::json!({
            "arm": arm, "repeat": repeat, "load": load, "block": block, "order": repeat, "seed": 1,
            "flags": flags, "environment": {}, "values": {}, "counts": {}, "histograms": {},
            "cpu": {}, "stacks": null, "noise": {}, "at_s": 1.0,
        }))
        .unwrap()
    }

    /// A load's trials of a block, the last one with these flags.
    fn section(load: &str, block: usize, flags: &[&str]) -> Vec<Trial> {
        let mut trials: Vec<Trial> = (0..3)
            .map(|repeat| trial(load, block, ("recv", repeat), &[]))
            .collect();
        let mut last = trial(load, block, ("xdp", 0), flags);
        last.order = 3;
        trials.push(last);
        trials
    }

    fn header(blocks: usize) -> Header {
        serde_json::from_value(serde_json::json!({
            "schema": 1, "experiment": "e", "job": "relay", "questions": [], "seed": 1,
            "quick": false, "blocks": blocks, "baseline": "recv", "arms": ["recv", "xdp"],
            "loads": ["l", "m", "none"], "metrics": [], "machine": {}, "command": "", "started": "",
            "skipped": [
                {"arm": "recv", "load": "none", "reason": "", "remedy": ""},
                {"arm": "xdp", "load": "none", "reason": "", "remedy": ""},
            ],
            "origin": [],
        }))
        .unwrap()
    }

    fn next(record: &Record) -> Option<(usize, Vec<String>)> {
        let (block, loads) = record.next()?;
        Some((block, loads.into_iter().collect()))
    }

    /// Runs all that is left of the blocks before this one.
    fn run(record: &mut Record, upto: usize) {
        while let Some((block, loads)) = next(record).filter(|(block, _)| *block < upto) {
            for load in loads {
                record
                    .section(&load, section(&load, block, &["noise"]))
                    .unwrap();
            }
        }
    }

    #[test]
    fn disturbed_trials_are_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        assert!(unfinished(folder.path()).is_err());
        let mut record = Record::begin(folder.path(), header(5)).unwrap();
        assert!(unfinished(folder.path()).unwrap());
        run(&mut record, 5);
        assert_eq!((record.of_load("l"), record.of_load("m")), (5, 5));
        assert_eq!(next(&record), None);
        assert!(!unfinished(folder.path()).unwrap());
    }

    #[test]
    fn record_continues_where_each_load_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::begin(folder.path(), header(5)).unwrap();
        run(&mut record, 2);
        record.section("m", section("m", 2, &[])).unwrap();
        // The last of a load's trials never came to the disk.
        for trial in &section("l", 2, &[])[..3] {
            record.writer.trial(trial.clone()).unwrap();
        }
        drop(record);
        let mut record = Record::resume(folder.path()).unwrap();
        assert_eq!(record.blocks(), 2);
        assert_eq!(next(&record), Some((2, vec!["l".to_owned()])));
        record.section("l", section("l", 2, &[])).unwrap();
        let both = vec!["l".to_owned(), "m".to_owned()];
        assert_eq!(next(&record), Some((3, both)));
        run(&mut record, 5);
        assert_eq!(next(&record), None);
    }

    #[test]
    fn abandoned_arm_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::begin(folder.path(), header(5)).unwrap();
        run(&mut record, 2);
        record
            .give_up(Skip {
                arm: "xdp".to_owned(),
                load: None,
                reason: "it failed".to_owned(),
                remedy: "mend it".to_owned(),
            })
            .unwrap();
        for load in ["l", "m"] {
            let mut trials = section(load, 2, &[]);
            trials.pop();
            record.section(load, trials).unwrap();
        }
        drop(record);
        let record = Record::resume(folder.path()).unwrap();
        assert_eq!(record.blocks(), 3);
        assert!(record.header.given_up("xdp").is_some());
    }

    #[test]
    fn dates_are_civil() {
        assert_eq!(rfc3339(0, 0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(951_782_400, 5), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(rfc3339(1_795_262_400, 0), "2026-11-21T12:00:00.000000000Z");
    }
}
