//! Where the time went: CPU states, hottest functions, flame graphs.

use std::collections::BTreeSet;
use std::fmt::Write;
use units::format::digits;

use super::element::{Cell, figure, paragraph, responsive, table};
use super::questions::arm_cell;
use crate::analysis::Analysis;
use crate::cpu::{Usage, usages};
use crate::palette::STATES;
use crate::record::Stacks;
use crate::stacks::{self, Frame, Ranking};
use crate::svg::{self, escape};

const TOP: usize = 10;

pub(super) fn section(analysis: &Analysis<'_>) -> String {
    let loads = &analysis.record.header.loads;
    let mut html = String::new();
    for (at, load) in loads.iter().enumerate() {
        html.push_str(&states(&usages(analysis, load), analysis, load, at));
    }
    // Stacks of every load would fill the page; those of the first one stand for the code paths.
    if let Some(load) = loads.first() {
        html.push_str(&functions(analysis, load));
    }
    if html.is_empty() {
        return html;
    }
    format!(
        "<section aria-labelledby=\"cost\"><h2 id=\"cost\">Where the time went</h2>{html}</section>"
    )
}

fn states(usages: &[Usage], analysis: &Analysis<'_>, load: &str, at: usize) -> String {
    let title = format!("CPU time by state, {load}");
    let bars = |id, width| svg::cpu(usages, load, id, title.clone(), width);
    let below = format!(
        "{load}: the whole machine, generator and receivers included, softirq where it ran. \
         Counted by tracepoints at every change of state, not sampled by the clock tick."
    );
    let bars = responsive(&format!("cpu-{at}"), &below, bars);
    if bars.is_empty() {
        return bars;
    }
    let shown: Vec<usize> = (0..STATES.len())
        .filter(|&state| usages.iter().any(|usage| usage.states[state] > 0.0))
        .collect();
    let inside: BTreeSet<&String> = usages
        .iter()
        .flat_map(|usage| usage.of_which.keys())
        .collect();
    let names: Vec<String> = shown
        .iter()
        .map(|&state| format!("#{}", STATES[state].0))
        .chain(["#all".to_owned()])
        .chain(inside.iter().map(|name| format!("#of which {name}")))
        .collect();
    let heads: Vec<&str> = std::iter::once("arm")
        .chain(names.iter().map(String::as_str))
        .collect();
    let rows = usages
        .iter()
        .map(|usage| {
            let states = shown.iter().map(|&state| usage.states[state]);
            let of_which = inside
                .iter()
                .map(|name| usage.of_which.get(*name).copied().unwrap_or(0.0));
            let shares = states.chain([usage.busy()]).chain(of_which);
            std::iter::once(arm_cell(analysis, &usage.arm))
                .chain(shares.map(|share| Cell::number(digits(share))))
                .collect()
        })
        .collect();
    bars + &table(&format!("Percent of all CPUs, {load}"), &heads, rows)
}

fn functions(analysis: &Analysis<'_>, load: &str) -> String {
    let mut html = String::new();
    for (at, arm) in analysis.record.header.arms.iter().enumerate() {
        if let Some(stacks) = stacks::of_arm(analysis, load, arm) {
            html.push_str(&of_arm(&stacks, arm, at));
        }
    }
    if html.is_empty() {
        return html;
    }
    format!(
        "<h3>Hottest functions, {}</h3>{}{html}",
        escape(load),
        paragraph(
            "Sampled on the CPU clock, which misses idle CPUs and stretches with interrupts off: read \
             the order of functions here, and the amount of time above."
        )
    )
}

fn of_arm(stacks: &Stacks, arm: &str, at: usize) -> String {
    let mut html = format!(
        "<details><summary>{}: {} of {} samples</summary>",
        escape(arm),
        stacks.obtained,
        stacks.expected
    );
    for (caption, ranking) in [
        ("on the CPU (flat)", stacks::flat(stacks)),
        ("on the stack (cumulative)", stacks::cumulative(stacks)),
    ] {
        let caption = format!("{arm}: {caption}");
        let _ = write!(
            html,
            "<div class=\"symbols\">{}</div>",
            top(&caption, &ranking, stacks)
        );
    }
    let title = format!("Flame graph of {arm}");
    let graph = svg::flame(&Frame::of(stacks), format!("flame-{at}"), title);
    html.push_str(&figure(
        &graph,
        "Wider is more samples; callers below, callees above. Blue: BPF programs.",
    ));
    html.push_str("</details>");
    html
}

fn top(caption: &str, ranking: &Ranking, stacks: &Stacks) -> String {
    let all: u64 = stacks.folded.values().sum();
    let rows = ranking
        .iter()
        .take(TOP)
        .map(|(name, samples)| {
            vec![
                Cell::text(name),
                Cell::number(samples.to_string()),
                Cell::number(format!("{:.1}", percent(*samples, all))),
            ]
        })
        .collect();
    table(caption, &["function", "#samples", "#%"], rows)
}

#[expect(clippy::cast_precision_loss, reason = "samples, far below 2^53")]
fn percent(samples: u64, all: u64) -> f64 {
    100.0 * samples as f64 / all.max(1) as f64
}
