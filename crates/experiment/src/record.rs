//! The record of a run on disk: appended block by block, so that an interruption loses one block.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use report::record::{Header, Trial, flagged};
use report::{Record as Written, Writer};

use crate::BadInput;
use crate::run::planned;

/// A record being written.
#[derive(Debug)]
pub(crate) struct Record {
    writer: Writer,
    pub(crate) header: Header,
    /// Complete blocks so far.
    pub(crate) blocks: usize,
    /// Those of them with a flagged trial.
    pub(crate) flagged: usize,
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
            blocks: 0,
            flagged: 0,
        })
    }

    /// Continues the record in `folder`, after its last complete block.
    pub(crate) fn resume(folder: &Path) -> Result<Self> {
        let (writer, written) =
            Writer::resume(&path(folder)).map_err(|error| BadInput(error.to_string()))?;
        let (blocks, flagged) = done(&written);
        Ok(Self {
            writer,
            header: written.header,
            blocks,
            flagged,
        })
    }

    /// Appends a complete block.
    pub(crate) fn block(&mut self, trials: Vec<Trial>) -> Result<()> {
        self.flagged += usize::from(!flagged(&trials).is_empty());
        for trial in trials {
            self.writer.trial(trial)?;
        }
        self.blocks += 1;
        Ok(())
    }
}

/// Whether the record in `folder` has blocks left to run.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn unfinished(folder: &Path) -> Result<bool> {
    let written = Written::read(&path(folder))?;
    let (blocks, flagged) = done(&written);
    Ok(blocks < planned(written.header.blocks, flagged))
}

/// Complete blocks, and those of them with a flagged trial.
fn done(written: &Written) -> (usize, usize) {
    let blocks = whole_blocks(written);
    let flagged = (0..blocks).filter(|block| {
        let of_block = written.trials.iter().filter(|trial| trial.block == *block);
        !flagged(of_block).is_empty()
    });
    (blocks, flagged.count())
}

fn path(folder: &Path) -> PathBuf {
    folder.join("record.jsonl")
}

/// How many blocks from the first on have as many trials as the first.
fn whole_blocks(written: &Written) -> usize {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for trial in written.trials.iter().filter(|trial| trial.attempt == 0) {
        *sizes.entry(trial.block).or_default() += 1;
    }
    let full = sizes.get(&0).copied().unwrap_or(0);
    (0..)
        .take_while(|block| full > 0 && sizes.get(block) == Some(&full))
        .count()
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

    fn trial(block: usize, flags: &[&str]) -> Trial {
        serde_json::from_value(serde_json::json!({
            "arm": "xdp", "repeat": 0, "load": "l", "block": block, "order": 0, "seed": 1,
            "flags": flags, "environment": {}, "values": {}, "counts": {}, "histograms": {},
            "cpu": {}, "stacks": null, "noise": {}, "at_s": 1.0,
        }))
        .unwrap()
    }

    fn header(blocks: usize) -> Header {
        serde_json::from_value(serde_json::json!({
            "schema": 1, "experiment": "e", "job": "relay", "questions": [], "seed": 1,
            "quick": false, "blocks": blocks, "baseline": "xdp", "arms": ["xdp"], "loads": ["l"],
            "metrics": [], "machine": {}, "skipped": [], "command": "", "started": "", "origin": [],
        }))
        .unwrap()
    }

    #[test]
    fn a_record_is_finished_after_its_blocks_and_those_that_replace_flagged_ones() {
        let folder = tempfile::tempdir().unwrap();
        assert!(unfinished(folder.path()).is_err());
        let mut record = Record::begin(folder.path(), header(5)).unwrap();
        for block in 0..5 {
            assert!(unfinished(folder.path()).unwrap(), "{block}");
            let flags = if block == 2 { &["noise"][..] } else { &[] };
            record.block(vec![trial(block, flags)]).unwrap();
        }
        assert!(unfinished(folder.path()).unwrap(), "one was flagged");
        record.block(vec![trial(5, &[])]).unwrap();
        assert!(!unfinished(folder.path()).unwrap());
    }

    #[test]
    fn dates_are_civil() {
        assert_eq!(rfc3339(0, 0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(951_782_400, 5), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(rfc3339(1_795_262_400, 0), "2026-11-21T12:00:00.000000000Z");
    }
}
