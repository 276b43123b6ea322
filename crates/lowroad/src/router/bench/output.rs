//! The results of lookups, as a table and as JSON.

use benchmarks::router::group::{Arm, Best, Group};
use benchmarks::router::lookup::Keys;
use serde_json::{Value, json};
use stats::{median, median_interval};

use crate::router::format::{mib, short, to_mib};

pub(super) fn json(groups: &[Group], keys: Keys) -> String {
    let groups: Vec<Value> = groups.iter().map(group_json).collect();
    let value = json!({
        "keys": keys.count,
        "batch": keys.batch,
        "seed": keys.seed,
        "groups": groups,
    });
    format!("{value:#}\n")
}

pub(in crate::router) fn group_json(group: &Group) -> Value {
    let patterns = group.patterns.iter().enumerate();
    let arms = group.arms.iter().map(|arm| {
        let ns: Value = patterns
            .clone()
            .map(|(at, name)| ((*name).to_owned(), values_json(&arm.ns[at])))
            .collect::<serde_json::Map<_, _>>()
            .into();
        json!({
            "engine": arm.engine,
            "mib": to_mib(arm.bytes),
            "build_s": arm.build_s,
            "wrong": arm.wrong,
            "ns_per_lookup": ns,
        })
    });
    let arms: Vec<Value> = arms.collect();
    let best: serde_json::Map<String, Value> = patterns
        .clone()
        .filter_map(|(at, name)| Some(((*name).to_owned(), best_json(group, &group.best(at)?))))
        .collect();
    json!({
        "name": group.name,
        "about": group.about,
        "checked": group.checked,
        "arms": arms,
        "best": best,
    })
}

fn best_json(group: &Group, best: &Best) -> Value {
    let name = |arm: &usize| group.arms[*arm].engine.clone();
    json!({
        "engine": name(&best.arm),
        "no_difference": best.ties.iter().map(name).collect::<Vec<_>>(),
        "smallest_detectable": best.smallest_detectable,
    })
}

fn values_json(ns: &[f64]) -> Value {
    let interval = median_interval(ns);
    json!({
        "median": median(ns),
        "lower": interval.map(|interval| interval.lower),
        "upper": interval.map(|interval| interval.upper),
        "confidence": interval.map(|interval| interval.confidence),
        "n": ns.len(),
    })
}

pub(super) fn text(groups: &[Group], keys: Keys) -> String {
    let mut text = format!(
        "ns per lookup in one thread, median and interval; {} keys by {}, seed {}\n",
        keys.count, keys.batch, keys.seed
    );
    if cfg!(debug_assertions) {
        text += "this is a debug build: a release build takes less\n";
    }
    for group in groups {
        text += &group_text(group);
    }
    text
}

pub(in crate::router) fn group_text(group: &Group) -> String {
    let rounds = group.arms.first().map_or(0, |arm| arm.ns[0].len());
    let mut text = format!("\n{}: {}   n={rounds}\n", group.name, group.about);
    text += &table(group);
    for (at, pattern) in group.patterns.iter().enumerate() {
        if let Some(best) = group.best(at) {
            text += &sentence(group, pattern, &best);
        }
    }
    text += &format!(
        "  {} wrong answers of {} checked for each engine and pattern\n",
        group.wrong(),
        group.checked
    );
    text
}

fn table(group: &Group) -> String {
    let mut head = vec![String::new(), "MiB".to_owned(), "build s".to_owned()];
    head.extend(group.patterns.iter().map(|&name| name.to_owned()));
    let mut lines = vec![head];
    lines.extend(group.arms.iter().map(line));
    let columns = lines[0].len();
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        text += &format!("  {:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            text += &format!("  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

fn line(arm: &Arm) -> Vec<String> {
    let bytes = mib(arm.bytes);
    let mut cells = vec![
        arm.engine.clone(),
        bytes.trim_end_matches(" MiB").to_owned(),
        format!("{:.2}", arm.build_s),
    ];
    cells.extend(arm.ns.iter().map(|ns| {
        let middle = median(ns).map_or_else(|| "-".to_owned(), short);
        let interval = median_interval(ns);
        let range = interval.map(|range| format!(" {}-{}", short(range.lower), short(range.upper)));
        middle + &range.unwrap_or_default()
    }));
    cells
}

fn sentence(group: &Group, pattern: &str, best: &Best) -> String {
    let name = |arm: &usize| group.arms[*arm].engine.as_str();
    let first = name(&best.arm);
    if best.ties.is_empty() {
        return format!("  {pattern}: {first} is the fastest\n");
    }
    let others: Vec<&str> = best.ties.iter().map(name).collect();
    let smallest = best
        .smallest_detectable
        .map(|share| format!(" (smallest detectable {:.0} %)", 100.0 * share));
    format!(
        "  {pattern}: {first}; no difference detectable to {}{}\n",
        others.join(", "),
        smallest.unwrap_or_default()
    )
}
