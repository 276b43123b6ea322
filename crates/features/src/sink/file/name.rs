//! The names of files: the requested name, or one name per file of a series.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Store;
use crate::sink::{Error, STANDARD_OUTPUT};

/// The names of a run's files.
#[derive(Debug)]
pub(super) struct Names {
    path: PathBuf,
    /// Whether every file has a name of the series. Otherwise the first file has the requested name.
    series: bool,
    opened: u32,
}

impl Names {
    pub(super) fn new(path: &Path, series: bool) -> Result<Self, Error> {
        if path.is_dir() {
            return Err(Error::IsAFolder {
                path: path.display().to_string(),
            });
        }
        let special = is_special(path);
        if series && special {
            return Err(Error::NotAFile {
                path: path.display().to_string(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            series,
            opened: 0,
        })
    }

    /// Opens the next file.
    pub(super) fn open(&mut self) -> Result<Store, Error> {
        if is_special(&self.path) {
            return Store::stream(&self.path);
        }
        let in_series = self.series || self.opened > 0;
        loop {
            let path = if in_series {
                self.next()
            } else {
                self.path.clone()
            };
            self.opened += 1;
            match Store::file(path) {
                // Try the following number.
                Err(Error::InUse { .. }) if in_series => {}
                store => return store,
            }
        }
    }

    /// NAME-YYYYMMDDTHHMMSS-N.ENDING, a name that no file has yet.
    fn next(&self) -> PathBuf {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time(now.map_or(0, |now| now.as_secs()));
        let mut number = self.opened + 1;
        loop {
            let path = numbered(&self.path, &time, number);
            if !fs::exists(&path).unwrap_or(false) {
                return path;
            }
            number += 1;
        }
    }
}

/// Whether the path is standard output, a pipe or a device, where written bytes cannot be replaced.
fn is_special(path: &Path) -> bool {
    path == Path::new(STANDARD_OUTPUT)
        || fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn numbered(path: &Path, time: &str, number: u32) -> PathBuf {
    let mut name = path.file_stem().map_or_else(OsString::new, OsString::from);
    name.push(format!("-{time}-{number}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

/// Seconds since 1970 as YYYYMMDDTHHMMSS, UTC.
fn time(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}")
}

/// Days since 1970 as year, month and day.
fn date(mut day: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while day >= 365 + leap(year) {
        day -= 365 + leap(year);
        year += 1;
    }
    let lengths = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}

fn leap(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_as_a_date() {
        assert_eq!(time(0), "19700101T000000");
        assert_eq!(time(951_827_696), "20000229T123456");
        assert_eq!(time(1_798_761_599), "20261231T235959");
        assert_eq!(time(4_107_542_400), "21000301T000000");
    }

    #[test]
    fn the_ending_stays_the_ending() {
        let name = |path: &str| numbered(Path::new(path), "T", 3).display().to_string();
        assert_eq!(name("/a/flows.v1.parquet"), "/a/flows.v1-T-3.parquet");
        assert_eq!(name("flows"), "flows-T-3");
    }
}
