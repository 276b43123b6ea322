//! record.jsonl on disk: written a line per trial, read back even where a crash tore the last line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::record::{Header, Line, Skip, Trial};

/// The layout of record.jsonl that this version writes. It reads all from 1 on.
pub const SCHEMA: u32 = 2;
/// Half a bucket of the histograms of schema 1, which had 32 buckets an octave.
const RESOLUTION_OF_SCHEMA_1: f64 = 1.0 / 64.0;
/// A trial of a later block is malformed: no experiment has this many.
const MAX_BLOCK: usize = 100_000;

/// The contents of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Where it was read from.
    pub folder: PathBuf,
    pub header: Header,
    /// In the order they ran; a trial that ran again after `--resume` stands as it ran last.
    pub trials: Vec<Trial>,
    /// Notices for the reader, such as a torn last line.
    pub notices: Vec<String>,
}

/// Which trial: a record holds each once, with all its attempts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub block: usize,
    pub load: String,
    pub arm: String,
    pub repeat: u8,
}

/// Appends trials to a record.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("{path}:{line}: not a line of a record: {reason}")]
    Line {
        path: PathBuf,
        line: usize,
        reason: String,
    },
    #[error(
        "{path}: the first line is not a record's header; was this written by lowroad compare?"
    )]
    NoHeader { path: PathBuf },
    #[error(
        "{path}: written as schema {found}, this lowroad reads 1 to {SCHEMA}; read it with the lowroad that wrote it"
    )]
    Schema { path: PathBuf, found: u32 },
}

impl Record {
    /// Reads a record. A last line that is not complete is left out, with a notice.
    ///
    /// # Errors
    /// When the file cannot be read, its first line is not a header of this schema, or a line before
    /// the last is not a trial.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::file(path, source))?;
        Self::parse(&text, path)
    }

    /// As `read`, from text; `path` only names it in errors.
    ///
    /// # Errors
    /// As `read`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let mut lines = text.lines().enumerate();
        let no_header = || Error::NoHeader {
            path: path.to_owned(),
        };
        let (_, first) = lines.next().ok_or_else(no_header)?;
        let Ok(Line::Header(mut header)) = serde_json::from_str(first) else {
            return Err(no_header());
        };
        if !(1..=SCHEMA).contains(&header.schema) {
            return Err(Error::Schema {
                path: path.to_owned(),
                found: header.schema,
            });
        }
        if header.schema == 1 {
            state_resolution(&mut header);
        }
        let torn_at = (!text.ends_with('\n')).then(|| text.lines().count() - 1);
        let mut trials = Vec::new();
        let mut notices = Vec::new();
        for (at, line) in lines {
            match serde_json::from_str(line) {
                Ok(Line::Trial(trial)) if trial.block > MAX_BLOCK => {
                    let reason = format!("block {} is above {MAX_BLOCK}", trial.block);
                    return Err(Error::line(path, at, &reason));
                }
                Ok(Line::Trial(mut trial)) => {
                    if header.schema == 1 {
                        for histogram in trial.histograms.values_mut() {
                            *histogram = histogram
                                .convert_schema_1()
                                .map_err(|error| Error::line(path, at, &error.to_string()))?;
                        }
                    }
                    trials.push(trial);
                }
                Ok(Line::Skip(skip)) => header.skipped.push(skip),
                Err(_) if torn_at == Some(at) => notices.push(format!(
                    "line {} is torn (the run was cut off while writing it) and left out",
                    at + 1
                )),
                Ok(Line::Header(_)) => {
                    return Err(Error::line(path, at, "a second header"));
                }
                Err(error) => return Err(Error::line(path, at, &error.to_string())),
            }
        }
        Ok(Self {
            folder: path.parent().unwrap_or(path).to_owned(),
            header,
            trials: latest(trials),
            notices,
        })
    }

    /// The trials that need not run again.
    pub fn complete(&self) -> BTreeSet<Key> {
        self.trials.iter().map(Key::of).collect()
    }
}

impl Key {
    pub fn of(trial: &Trial) -> Self {
        Self {
            block: trial.block,
            load: trial.load.clone(),
            arm: trial.arm.clone(),
            repeat: trial.repeat,
        }
    }
}

impl Writer {
    /// Starts a record.
    ///
    /// # Errors
    /// When the file exists (a record is never overwritten) or cannot be written.
    pub fn create(path: &Path, header: &Header) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|source| Error::file(path, source))?;
        let mut writer = Self {
            file,
            path: path.to_owned(),
        };
        writer.line(&Line::Header(header.clone()))?;
        Ok(writer)
    }

    /// Goes on with a record, first cutting off a torn last line; hands back what it holds.
    ///
    /// # Errors
    /// As `Record::read`, and when the file cannot be written.
    pub fn resume(path: &Path) -> Result<(Self, Record), Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::file(path, source))?;
        let record = Record::parse(&text, path)?;
        let file = OpenOptions::new()
            .append(true)
            .open(path)
            .map_err(|source| Error::file(path, source))?;
        let mut writer = Self {
            file,
            path: path.to_owned(),
        };
        if !record.notices.is_empty() {
            let kept = text.rfind('\n').map_or(0, |end| end + 1);
            writer.attempt(|file| file.set_len(kept as u64))?;
        } else if !text.ends_with('\n') {
            writer.attempt(|file| file.write_all(b"\n"))?;
        }
        Ok((writer, record))
    }

    /// Appends a trial, and has it on disk before it returns.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn trial(&mut self, trial: Trial) -> Result<(), Error> {
        self.line(&Line::Trial(trial))
    }

    /// Appends that an arm runs no further.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn skip(&mut self, skip: Skip) -> Result<(), Error> {
        self.line(&Line::Skip(skip))
    }

    fn line(&mut self, line: &Line) -> Result<(), Error> {
        let mut text = serde_json::to_string(line).map_err(|error| {
            // A float that is not a number has no JSON form.
            Error::line(&self.path, 0, &error.to_string())
        })?;
        text.push('\n');
        self.attempt(|file| {
            file.write_all(text.as_bytes())?;
            file.sync_data()
        })
    }

    fn attempt(&mut self, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
        write(&mut self.file).map_err(|source| Error::file(&self.path, source))
    }
}

impl Error {
    fn file(path: &Path, cause: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            cause,
        }
    }

    fn line(path: &Path, at: usize, reason: &str) -> Self {
        Self::Line {
            path: path.to_owned(),
            line: at + 1,
            reason: reason.to_owned(),
        }
    }
}

/// States the resolution of the metrics that came from histograms before records said so.
fn state_resolution(header: &mut Header) {
    for metric in &mut header.metrics {
        let name = metric.name.as_str();
        let histogram = ["_p50", "_p99", "_iqr", "_median", "_p95"];
        if metric.unit == "us" && histogram.iter().any(|end| name.ends_with(end)) {
            metric.resolution = RESOLUTION_OF_SCHEMA_1;
        }
    }
}

fn latest(trials: Vec<Trial>) -> Vec<Trial> {
    let mut attempts: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (at, trial) in trials.iter().enumerate() {
        let of_trial = attempts.entry(Key::of(trial)).or_default();
        if trial.attempt == 0 {
            of_trial.clear();
        }
        of_trial.push(at);
    }
    let kept: BTreeSet<usize> = attempts.into_values().flatten().collect();
    trials
        .into_iter()
        .enumerate()
        .filter(|(at, _)| kept.contains(at))
        .map(|(_, trial)| trial)
        .collect()
}
