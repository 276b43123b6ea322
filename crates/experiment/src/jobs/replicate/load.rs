//! Loads of replicate, and which of them it can be offered: writes, requests to an application, or writes that copies
//! are to have.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Value;
use units::{Size, Span};

use crate::bench::JobTrialSpec;
use crate::load::{JobLoad, JobMeasure, common_keys, option_words};

/// One trial of replicate.
pub(super) type TrialSpec<'a> = JobTrialSpec<'a, Load>;

/// The measures of replicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Writes to a file, one after the other.
    Writes,
    /// Requests to a program that writes files, one after the other.
    Requests,
    /// How long after a write copies of the file have it.
    Lag,
}

impl JobMeasure for Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Writes => "writes",
            Self::Requests => "requests",
            Self::Lag => "lag",
        }
    }

    fn windows(self) -> f64 {
        match self {
            // And what they cost the machine; starting the arm, and comparing its copy.
            Self::Writes | Self::Requests => 3.0,
            Self::Lag => 2.0,
        }
    }
}

/// A load of replicate: what is done to its files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Load {
    pub(super) measure: Option<Measure>,
    /// Bytes of a write, or of a database's row.
    pub(super) payload: Option<Size>,
    pub(super) duration: Span,
    #[serde(default)]
    pub(super) options: BTreeMap<String, Value>,
}

impl JobLoad for Load {
    type Measure = Measure;

    common_keys!();

    fn label(&self) -> String {
        let payload = self.payload.iter().map(Size::to_string);
        let words: Vec<_> = payload.chain(option_words(&self.options)).collect();
        words.join(" ")
    }
}

/// The options of a load.
pub(super) const WRITES: &str = "writes";
const APPLICATION: &str = "application";
pub(super) const REQUESTS: &str = "requests";
const CLIENT: &str = "client";
/// Writes a second.
pub(super) const RATE: &str = "rate";
/// The number of writes after which an fsync follows; with zero, none does.
pub(super) const SYNC: &str = "sync";
pub(super) const FILES: &str = "files";
pub(super) const COPIES: &str = "copies";
const IN_PLACE: &str = "in-place";

/// More writes or requests in one trial take too long.
const MAX_COUNT: i64 = 10_000_000;
/// Every arm sees a larger write as several.
const MAX_WRITE_LEN: usize = 1 << 20;

/// The program that answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Application {
    /// The origin's: a GET rewrites a small file.
    File,
    /// A POST inserts a row into a database.
    Sqlite,
}

impl Application {
    pub(super) fn of(load: &Load) -> Option<Self> {
        match load.options.get(APPLICATION)?.as_str()? {
            "file" => Some(Self::File),
            "sqlite" => Some(Self::Sqlite),
            _ => None,
        }
    }
}

/// The number of an option; 0 without it.
pub(super) fn count(load: &Load, option: &str) -> usize {
    let count = load.options.get(option).and_then(Value::as_integer);
    count.and_then(|count| count.try_into().ok()).unwrap_or(0)
}

/// Whether each request is made by a process of its own, as the origin measured.
pub(super) fn by_curl(load: &Load) -> bool {
    load.options.contains_key(CLIENT)
}

/// Whether replicate can be offered the load, and measured so under it.
pub(super) fn check(load: &Load, measure: Measure) -> Result<(), String> {
    match measure {
        Measure::Writes => check_writes(load),
        Measure::Requests => check_requests(load),
        Measure::Lag => check_lag(load),
    }
}

fn check_writes(load: &Load) -> Result<(), String> {
    let many = load.options.len() == 1 && counted(load, WRITES);
    let sized = |size: usize| (8..=MAX_WRITE_LEN).contains(&size);
    if many && load.payload.is_some_and(|payload| sized(payload.length())) {
        return Ok(());
    }
    Err("writes need a payload of 8B to 1MiB, and options = { writes = N }".to_owned())
}

/// Whether the load is for measuring lag.
pub(super) fn is_lag(load: &Load) -> bool {
    load.options.contains_key(RATE)
}

/// Whether the files of copies are changed in place.
pub(super) fn in_place(load: &Load) -> bool {
    let asked = load.options.get(IN_PLACE);
    asked.and_then(Value::as_bool).unwrap_or(false)
}

fn check_lag(load: &Load) -> Result<(), String> {
    let within = |option: &str, least: i64, most: i64| {
        let value = load.options.get(option).map(Value::as_integer);
        value.is_none_or(|value| value.is_some_and(|value| (least..=most).contains(&value)))
    };
    let known = [RATE, SYNC, FILES, COPIES, IN_PLACE];
    let all_known = load.options.keys().all(|key| known.contains(&key.as_str()));
    let told = [RATE, SYNC]
        .iter()
        .all(|option| load.options.contains_key(*option));
    let ranges = within(RATE, 1, 100_000) && within(SYNC, 0, MAX_COUNT);
    let ranges = ranges && within(FILES, 1, 1000) && within(COPIES, 1, 64);
    let flag = load.options.get(IN_PLACE).is_none_or(Value::is_bool);
    let sized = load
        .payload
        .is_some_and(|payload| (8..=64 << 10).contains(&payload.length()));
    if all_known && told && ranges && flag && sized {
        return Ok(());
    }
    Err(
        "lag needs a payload of 8B to 64KiB and options = { rate = N, sync = N }, and may have files (to 1000), copies (to 64) and in-place = true"
            .to_owned(),
    )
}

fn check_requests(load: &Load) -> Result<(), String> {
    let client = load.options.get(CLIENT);
    let known = load.options.len() == 2 + usize::from(client.is_some());
    let curl = client.is_none_or(|client| client.as_str() == Some("curl"));
    let application = Application::of(load);
    if !known || !curl || application.is_none() || !counted(load, REQUESTS) {
        return Err(
            "requests need options = { application = \"file\" or \"sqlite\", requests = N }, and may have client = \"curl\""
                .to_owned(),
        );
    }
    match (application, load.payload, client) {
        (Some(Application::Sqlite), Some(_), None) | (Some(Application::File), None, _) => Ok(()),
        _ => Err("of sqlite the payload is a row; file and curl have none".to_owned()),
    }
}

fn counted(load: &Load, option: &str) -> bool {
    let value = load.options.get(option).and_then(Value::as_integer);
    value.is_some_and(|value| (1..=MAX_COUNT).contains(&value))
}
