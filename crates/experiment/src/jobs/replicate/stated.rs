//! What an experiment file may say of replicate: writes, requests to an application, or writes that
//! copies are to have.

use crate::jobs::sends_nothing;
use crate::plan::{Load, Measure};

/// The options of a load.
pub(super) const WRITES: &str = "writes";
const APPLICATION: &str = "application";
pub(super) const REQUESTS: &str = "requests";
const CLIENT: &str = "client";
/// Writes a second.
pub(super) const RATE: &str = "rate";
/// So many writes are followed by an fsync; none is, where it is zero.
pub(super) const SYNC: &str = "sync";
pub(super) const FILES: &str = "files";
pub(super) const COPIES: &str = "copies";
const IN_PLACE: &str = "in-place";

/// More of either in one trial take too long.
const MOST: i64 = 10_000_000;
/// A write that is larger is more than one to every arm.
const LARGEST: usize = 1 << 20;

/// What answers requests.
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

/// A number that an option says.
pub(super) fn count(load: &Load, option: &str) -> usize {
    let count = load.options.get(option).and_then(toml::Value::as_integer);
    count.and_then(|count| count.try_into().ok()).unwrap_or(0)
}

/// Whether each request is a program of its own, as the origin measured.
pub(super) fn by_curl(load: &Load) -> bool {
    load.options.contains_key(CLIENT)
}

/// Whether replicate can be offered the load, and measured so under it.
pub(crate) fn check_stated(load: &Load, measure: Measure) -> Result<(), String> {
    if !sends_nothing(load) {
        return Err("what is followed has payload and options, and nothing of packets".to_owned());
    }
    match measure {
        Measure::Writes => check_writes(load),
        Measure::Requests => check_requests(load),
        Measure::Lag => check_lag(load),
        _ => Err("replicate is measured by writes, requests and lag".to_owned()),
    }
}

fn check_writes(load: &Load) -> Result<(), String> {
    let many = load.options.len() == 1 && counted(load, WRITES);
    let sized = |size: usize| (8..=LARGEST).contains(&size);
    if many && load.payload.is_some_and(|payload| sized(payload.0)) {
        return Ok(());
    }
    Err("writes need a payload of 8B to 1MiB, and options = { writes = N }".to_owned())
}

/// Whether what is measured is when copies have what was written.
pub(super) fn is_lag(load: &Load) -> bool {
    load.options.contains_key(RATE)
}

/// Whether copies' files are changed where they are.
pub(super) fn in_place(load: &Load) -> bool {
    let asked = load.options.get(IN_PLACE);
    asked.and_then(toml::Value::as_bool).unwrap_or(false)
}

fn check_lag(load: &Load) -> Result<(), String> {
    let within = |option: &str, least: i64, most: i64| {
        let value = load.options.get(option).map(toml::Value::as_integer);
        value.is_none_or(|value| value.is_some_and(|value| (least..=most).contains(&value)))
    };
    let known = [RATE, SYNC, FILES, COPIES, IN_PLACE];
    let all_known = load.options.keys().all(|key| known.contains(&key.as_str()));
    let told = [RATE, SYNC]
        .iter()
        .all(|option| load.options.contains_key(*option));
    let ranges = within(RATE, 1, 100_000) && within(SYNC, 0, MOST);
    let ranges = ranges && within(FILES, 1, 1000) && within(COPIES, 1, 64);
    let flag = load.options.get(IN_PLACE).is_none_or(toml::Value::is_bool);
    let sized = load
        .payload
        .is_some_and(|payload| (8..=64 << 10).contains(&payload.0));
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
    let value = load.options.get(option).and_then(toml::Value::as_integer);
    value.is_some_and(|value| (1..=MOST).contains(&value))
}
