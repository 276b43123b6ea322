//! Why to believe it: the honesty check, identities, noise, flags, skips, the machine, the command.

use std::collections::BTreeMap;
use units::format::digits;

use super::element::{Cell, paragraph, table};
use super::questions::arm_cell;
use crate::analysis::{Analysis, Row, flags_by_arm};
use crate::identities::{self, Identity};
use crate::svg::escape;
use crate::words::{Sentence, skips as skips_of};

pub(super) fn sections(analysis: &Analysis<'_>) -> String {
    let parts = [
        ("honesty", "Can it be believed?", honesty(analysis)),
        ("flags", "Disturbed trials", flags(analysis)),
        ("skips", "What did not run", skips(analysis)),
        ("origin", "What others published", origin(analysis)),
        ("machine", "The machine", machine(analysis)),
        ("again", "Run it again", again(analysis)),
    ];
    parts
        .into_iter()
        .filter(|(_, _, html)| !html.is_empty())
        .map(|(id, title, html)| {
            format!(
                "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{title}</h2>{html}</section>\n"
            )
        })
        .collect()
}

fn honesty(analysis: &Analysis<'_>) -> String {
    let checks: Vec<&Row<'_>> = analysis
        .rows
        .iter()
        .filter(|row| row.is_honesty_check())
        .collect();
    let baseline = &analysis.record.header.baseline;
    let words = format!(
        "{baseline} ran three times in every block. The second run gives the A/A band; the third is \
         judged like any arm, and every claim about it would be false."
    );
    let rows = checks
        .iter()
        .map(|row| {
            let said = Sentence::of(row);
            vec![
                Cell::text(&row.metric.name),
                Cell::text(row.load),
                Cell::text(said.claim),
                Cell::text(said.evidence),
            ]
        })
        .collect();
    paragraph(&words)
        + &table(
            "The baseline against itself",
            &["metric", "load", "verdict", "evidence"],
            rows,
        )
        + &held(&identities::check(&analysis.record.trials))
        + &noise(analysis)
}

fn held(identities: &[Identity]) -> String {
    let rows = identities
        .iter()
        .filter(|identity| identity.checked > 0)
        .map(|identity| {
            vec![
                Cell::text(identity.words),
                Cell::number(identity.checked.to_string()),
                Cell::number(identity.broken.to_string()),
            ]
        })
        .collect();
    table(
        "Identities of the counters, in every trial that holds them",
        &["identity", "#trials", "#broken"],
        rows,
    )
}

fn noise(analysis: &Analysis<'_>) -> String {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for trial in &analysis.record.trials {
        for (name, &value) in &trial.noise {
            values.entry(name).or_default().push(value);
        }
    }
    let rows = values
        .into_iter()
        .filter_map(|(name, values)| {
            let seen = stats::Quartiles::of(&values)?;
            Some(vec![
                Cell::text(name),
                Cell::number(digits(seen.median)),
                Cell::number(digits(seen.upper)),
                Cell::number(digits(seen.max)),
            ])
        })
        .collect();
    table(
        "Noise over all trials",
        &["measure", "#median", "#upper quartile", "#largest"],
        rows,
    )
}

fn flags(analysis: &Analysis<'_>) -> String {
    let rows: Vec<Vec<Cell>> = flags_by_arm(analysis.record)
        .into_iter()
        .map(|flags| {
            let reasons: Vec<String> = flags
                .reasons
                .iter()
                .map(|(reason, count)| match count {
                    1 => reason.clone(),
                    _ => format!("{reason} ({count} trials)"),
                })
                .collect();
            vec![
                arm_cell(analysis, &flags.label),
                Cell::number(flags.trials.to_string()),
                Cell::number(flags.flagged.to_string()),
                Cell::number(
                    flags
                        .share()
                        .map_or_else(String::new, |share| format!("{share:.0} %")),
                ),
                Cell::text(reasons.join("; ")),
            ]
        })
        .collect();
    let words = format!(
        "Every trial counts as it first ran, disturbed or not: blocks are in random order, so that a disturbance hits \
         every arm alike. The undisturbed blocks are a second opinion. Where it contradicts a claim, or where the arms' \
         shares of disturbed trials are more than {} points apart and a claim does not stand with the disturbed trials at \
         their worst, the row is unreliable.",
        stats::FLAG_GAP_POINTS
    );
    paragraph(&words)
        + &table(
            "Flags by arm",
            &["arm", "#attempts", "#flagged", "#share", "reasons"],
            rows,
        )
}

fn skips(analysis: &Analysis<'_>) -> String {
    let rows = skips_of(&analysis.record.header)
        .into_iter()
        .map(|skip| {
            vec![
                Cell::text(skip.what),
                Cell::text(skip.reason),
                Cell::text(skip.remedy),
            ]
        })
        .collect();
    let caption = "Arms that cannot run, or ran no further";
    table(caption, &["arm", "reason", "remedy"], rows)
}

fn origin(analysis: &Analysis<'_>) -> String {
    let origin = &analysis.record.header.origin;
    if origin.is_empty() {
        return String::new();
    }
    let items: String = origin
        .iter()
        .map(|figure| format!("<li>{}</li>", escape(figure)))
        .collect();
    paragraph("This experiment reproduces published work, which reported:")
        + &format!("<ul>{items}</ul>")
}

fn machine(analysis: &Analysis<'_>) -> String {
    let mut rows = Vec::new();
    for (key, value) in &analysis.record.header.machine {
        flatten(key, value, &mut rows);
    }
    let mut html = table(
        "As recorded before the first block",
        &["property", "value"],
        rows,
    );
    let mut seen: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for trial in &analysis.record.trials {
        for (key, value) in &trial.environment {
            *seen
                .entry(key.clone())
                .or_default()
                .entry(plain(value))
                .or_insert(0) += 1;
        }
    }
    let rows = seen
        .into_iter()
        .map(|(key, values)| {
            let many = values.len();
            let mut said: Vec<String> = values
                .into_iter()
                .take(4)
                .map(|(value, trials)| format!("{} ({trials})", shortened(&value)))
                .collect();
            if many > 4 {
                said.push(format!("and {} more", many - 4));
            }
            vec![Cell::text(key), Cell::text(said.join("; "))]
        })
        .collect();
    html.push_str(&table(
        "As found in the trials (how many)",
        &["setting", "values"],
        rows,
    ));
    format!("<div class=\"facts\">{html}</div>")
}

/// The start of a long value: record.jsonl has all of it.
fn shortened(value: &str) -> String {
    const MAX_CHARS: usize = 120;
    let mut start: String = value.chars().take(MAX_CHARS).collect();
    if start.len() < value.len() {
        start.push_str("..");
    }
    start
}

fn flatten(key: &str, value: &serde_json::Value, rows: &mut Vec<Vec<Cell>>) {
    match value {
        serde_json::Value::Object(inner) => {
            for (name, value) in inner {
                flatten(&format!("{key}.{name}"), value, rows);
            }
        }
        other => rows.push(vec![Cell::text(key), Cell::text(plain(other))]),
    }
}

fn plain(value: &serde_json::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn again(analysis: &Analysis<'_>) -> String {
    let header = &analysis.record.header;
    let notices: String = analysis
        .record
        .notices
        .iter()
        .map(|notice| format!("<p class=\"notice\">{}</p>", escape(notice)))
        .collect();
    format!(
        "<pre><code>{}</code></pre>{}{notices}",
        escape(&header.command),
        paragraph(&format!(
            "The seed {} gives the same order of arms in every block. Lines of record.jsonl hold every \
             trial, flagged ones too.",
            header.seed
        ))
    )
}
