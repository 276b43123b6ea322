//! The results, as tables and as JSON.

use std::fs;

use benchmarks::features::{Arm, ArmKind, Frames, Round};
use datapath::Missing;
use features::kernel::Subject;
use serde_json::{Value, json};
use stats::{Quartiles, median_interval};
use sys::kernel::Release;

pub(super) fn json(arms: &[Arm], frames: &Frames) -> String {
    let arms: Vec<Value> = arms.iter().map(arm_json).collect();
    let value = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "debug_build": cfg!(debug_assertions),
        "kernel": release(),
        "cpu": cpu(),
        "packets_from": frames.from,
        "packets": frames.packets,
        "bytes": frames.bytes,
        "left_out_packets": frames.left_out,
        "arms": arms,
    });
    format!("{value:#}\n")
}

fn arm_json(arm: &Arm) -> Value {
    let rounds: Vec<Value> = arm.rounds.iter().map(round_json).collect();
    let mut value = json!({
        "name": arm.name(),
        "rounds": rounds,
        "ns_per_packet": values_json(&each(arm, ns_per_packet)),
        "packets_per_s": values_json(&each(arm, packets_per_s)),
        "missing": arm.missing,
    });
    match &arm.kind {
        ArmKind::Rows(run) => {
            value["kind"] = "rows".into();
            value["columns"] = run.schema.columns().len().into();
            value["rows"] = arm.rows.into();
        }
        ArmKind::Program(..) => value["kind"] = "program".into(),
    }
    value
}

fn round_json(round: &Round) -> Value {
    json!({"packets": round.packets, "cpu_ns": round.cpu_ns, "wall_ns": round.wall_ns})
}

/// The median with its interval, and the extremes; null for no values.
fn values_json(values: &[f64]) -> Value {
    let Some(quartiles) = Quartiles::of(values) else {
        return Value::Null;
    };
    let interval = median_interval(values);
    json!({
        "median": quartiles.median,
        "lower": interval.map(|interval| interval.lower),
        "upper": interval.map(|interval| interval.upper),
        "confidence": interval.map(|interval| interval.confidence),
        "min": quartiles.min,
        "max": quartiles.max,
    })
}

pub(super) fn text(arms: &[Arm], frames: &Frames) -> String {
    let (packets, from) = (frames.packets, &frames.from);
    let mut text = format!(
        "{packets} packets ({from}); {}, Linux {}\n",
        cpu(),
        release()
    );
    if cfg!(debug_assertions) {
        text += "this is a debug build: a release build takes less\n";
    }
    if frames.left_out > 0 {
        text += &format!("{} packets of other link types left out\n", frames.left_out);
    }
    let (rows, programs): (Vec<&Arm>, Vec<&Arm>) = arms
        .iter()
        .partition(|arm| matches!(arm.kind, ArmKind::Rows(_)));
    if !rows.is_empty() {
        text += "\nPackets to rows in memory, one thread: CPU time, not counting where rows go\n";
        text += &table(
            &["", "ns/packet", "interval", "range", "packets/s", "rows"],
            rows.iter().map(|arm| cells(arm, arm.rows.to_string())),
        );
    }
    if !programs.is_empty() {
        text += "\nPrograms of the kernel, by BPF_PROG_TEST_RUN: a run for each packet\n";
        let floor = programs.iter().find(|arm| is_floor(arm));
        let floor = floor.and_then(|arm| median(arm));
        text += &table(
            &[
                "",
                "ns/packet",
                "interval",
                "range",
                "packets/s",
                "above empty",
            ],
            programs.iter().map(|arm| cells(arm, above(arm, floor))),
        );
    }
    for arm in arms {
        if let Some(Missing { what, remedy }) = &arm.missing {
            let line = format!("{}: {what}  {remedy}", arm.name());
            text += line.trim_end();
            text.push('\n');
        }
    }
    text + &footnote(arms)
}

fn is_floor(arm: &Arm) -> bool {
    matches!(arm.kind, ArmKind::Program(Subject::Empty, _))
}

/// An explanation of the columns.
fn footnote(arms: &[Arm]) -> String {
    let rounds = arms.iter().map(|arm| arm.rounds.len()).filter(|n| *n > 0);
    let (fewest, most) = rounds.fold((usize::MAX, 0), |(least, most), n| {
        (least.min(n), most.max(n))
    });
    let rounds = match (fewest, most) {
        (1, 1) => "one round".to_owned(),
        (fewest, most) if fewest == most => format!("medians of {most} rounds"),
        (fewest, most) => format!("medians of {fewest} or {most} rounds"),
    };
    match stats::median_ranks(fewest) {
        Some(ranks) => {
            let confidence = 100.0 * ranks.coverage;
            format!("\n{rounds}; an interval holds the true one with {confidence:.1} % or more\n")
        }
        None => format!("\n{rounds}: too few for an interval\n"),
    }
}

/// A line of the table: an arm that was not measured has none.
fn cells(arm: &Arm, last: String) -> Option<[String; 6]> {
    let costs = each(arm, ns_per_packet);
    let quartiles = Quartiles::of(&costs)?;
    let interval = median_interval(&costs);
    let range = |from, to| format!("{}-{}", short(from), short(to));
    Some([
        arm.name().to_owned(),
        short(quartiles.median),
        interval.map_or_else(
            || "-".to_owned(),
            |interval| range(interval.lower, interval.upper),
        ),
        range(quartiles.min, quartiles.max),
        rate(stats::median(&each(arm, packets_per_s))?),
        last,
    ])
}

/// The time of a program beyond that of an empty one.
fn above(arm: &Arm, floor: Option<f64>) -> String {
    let above = median(arm).zip(floor).map(|(cost, floor)| cost - floor);
    above
        .filter(|_| !is_floor(arm))
        .map_or_else(|| "-".to_owned(), short)
}

fn table(head: &[&str; 6], lines: impl Iterator<Item = Option<[String; 6]>>) -> String {
    let head = head.map(str::to_owned);
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(lines.flatten()).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let widths = [0, 1, 2, 3, 4, 5].map(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for line in &lines {
        text += &format!("{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(widths).skip(1) {
            text += &format!("  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

fn median(arm: &Arm) -> Option<f64> {
    stats::median(&each(arm, ns_per_packet))
}

fn each(arm: &Arm, of: fn(&Round) -> f64) -> Vec<f64> {
    arm.rounds.iter().map(of).collect()
}

fn ns_per_packet(round: &Round) -> f64 {
    float(round.cpu_ns) / float(round.packets.max(1))
}

fn packets_per_s(round: &Round) -> f64 {
    1e9 * float(round.packets) / float(round.wall_ns.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn float(value: u64) -> f64 {
    value as f64
}

/// Nanoseconds with three digits or more.
fn short(ns: f64) -> String {
    let digits = if ns < 10.0 {
        2
    } else {
        usize::from(ns < 100.0)
    };
    format!("{ns:.digits$}")
}

fn rate(packets: f64) -> String {
    if packets < 1e6 {
        format!("{:.0} k", packets / 1e3)
    } else {
        format!("{:.2} M", packets / 1e6)
    }
}

fn release() -> String {
    Release::running().map_or_else(|_| "unknown".to_owned(), |release| release.text)
}

/// The processor's name.
fn cpu() -> String {
    let all = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = all.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    named.unwrap_or_else(|| "unknown CPU".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_are_short() {
        let line = |name: &str, cost: f64| {
            let cost = short(cost);
            Some([name, &cost, "-", "-", &rate(1.5e6), "7"].map(str::to_owned))
        };
        let shown = table(
            &["", "ns/packet", "interval", "range", "packets/s", "rows"],
            [line("flow.v1", 812.4), None, line("a", 61.23)].into_iter(),
        );
        assert_eq!(
            shown,
            "         ns/packet  interval  range  packets/s  rows\n\
             flow.v1        812         -      -     1.50 M     7\n\
             a             61.2         -      -     1.50 M     7\n"
        );
    }
}
