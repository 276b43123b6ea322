//! Two tables of flows, row by row and column by column.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Number, Value};

use super::peer::{Row, Rows};

/// How near values must be.
#[derive(Clone, Copy)]
pub(crate) enum Tolerance {
    /// The noise of sums in floating point.
    Noise,
    /// What rounding each packet's time down to a millisecond can change.
    Rounding,
}

/// What is not equal.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// In words.
    pub(crate) words: Vec<String>,
    /// Columns in which flows differ that both have.
    pub(crate) columns: BTreeSet<String>,
    /// Flows that only one side has.
    pub(crate) flows: usize,
}

/// Numbers rows in their own way; ours is made of the flow itself.
const NUMBER: &str = "id";

pub(crate) fn compare(ours: &Rows, theirs: &Rows, within: Tolerance) -> Differences {
    let mut differences = Differences::default();
    let (mut ours, mut theirs) = (by_key(&ours.rows), by_key(&theirs.rows));
    let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).cloned().collect();
    for key in keys {
        let mine = ours.remove(&key).unwrap_or_default();
        let other = theirs.remove(&key).unwrap_or_default();
        let lonely = mine.len().abs_diff(other.len());
        if lonely > 0 {
            differences.flows += lonely;
            let words = format!("{key:?}: {} rows, NFStream {}", mine.len(), other.len());
            differences.words.push(words);
        }
        for (mine, other) in mine.iter().zip(&other) {
            differences.row(&key, mine, other, within);
        }
    }
    differences
}

impl Differences {
    pub(crate) fn none(&self) -> bool {
        self.columns.is_empty() && self.flows == 0
    }

    fn row(&mut self, key: &Key, ours: &Row, theirs: &Row, within: Tolerance) {
        for (name, theirs) in theirs.iter().filter(|(name, _)| *name != NUMBER) {
            let ours = ours.get(name).unwrap_or(&Value::Null);
            if !equal(ours, theirs, allowed(name, within)) {
                self.columns.insert(name.clone());
                self.words
                    .push(format!("{key:?} {name}: {ours}, NFStream {theirs}"));
            }
        }
    }
}

/// Endpoints in order, protocol, version, tag.
type Key = ([String; 2], [String; 3]);

/// Flows of a key in the order in which they start.
fn by_key(rows: &[Row]) -> BTreeMap<Key, Vec<&Row>> {
    let mut keys: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let text = |name: &str| row[name].to_string();
        let end = |side: &str| {
            let (ip, port) = (text(&format!("{side}_ip")), text(&format!("{side}_port")));
            format!("{ip}:{port}")
        };
        let mut ends = [end("src"), end("dst")];
        ends.sort();
        let key = (ends, ["protocol", "ip_version", "vlan_id"].map(text));
        keys.entry(key).or_default().push(row);
    }
    for rows in keys.values_mut() {
        rows.sort_by_key(|row| row["bidirectional_first_seen_ms"].as_i64());
    }
    keys
}

/// How far a column's numbers may be apart.
fn allowed(name: &str, within: Tolerance) -> f64 {
    /// Two gaps' ends are each moved by less than a millisecond, and so the spread of them by less
    /// than this.
    const SPREAD_MS: f64 = 1.5;
    match within {
        Tolerance::Rounding if name.ends_with("stddev_piat_ms") => SPREAD_MS,
        Tolerance::Rounding if name.ends_with("_piat_ms") => 1.0,
        _ => 0.0,
    }
}

fn equal(ours: &Value, theirs: &Value, allowed: f64) -> bool {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) => {
            let mut pairs = ours.iter().zip(theirs);
            ours.len() == theirs.len() && pairs.all(|(ours, theirs)| place(ours, theirs, allowed))
        }
        (Value::Number(ours), Value::Number(theirs)) => near(ours, theirs, allowed),
        _ => ours == theirs,
    }
}

/// A place in a list: null where no packet has it, which NFStream writes as -1.
fn place(ours: &Value, theirs: &Value, allowed: f64) -> bool {
    match theirs.as_i64() {
        Some(-1) => ours.is_null(),
        _ => equal(ours, theirs, allowed),
    }
}

fn near(ours: &Number, theirs: &Number, allowed: f64) -> bool {
    if let (Some(ours), Some(theirs)) = (ours.as_i128(), theirs.as_i128()) {
        return (ours - theirs).abs() <= i128::from(allowed >= 1.0);
    }
    let (ours, theirs) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
    let noise = ours.abs().max(theirs.abs()) * 1e-9 + 1e-9;
    (ours - theirs).abs() <= allowed + noise
}
