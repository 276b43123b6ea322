//! Box plots in a terminal: the times of each test's transactions, or the rates of its repeats.

use std::fmt::Write as _;

use netbench::{Latency, Outcome};

use super::text::outcome_title;

/// The width of a plot, in characters.
const WIDTH: usize = 60;
/// Fewer repeats have no quartiles.
const MIN_REPEATS: usize = 5;

/// Minimum, quartiles and maximum.
type Five = [f64; 5];

/// Plots the tests that transact on one axis, with a box of all their transactions, and the repeated tests that stream on
/// another, with a box of their repeats. Empty if there is neither.
pub(super) fn draw(all: &[Outcome]) -> String {
    let mut times: Vec<(String, Latency)> = Vec::new();
    let mut rates: Vec<(String, Vec<f64>)> = Vec::new();
    let mut add = |title: String, latency: &Latency| match times
        .iter_mut()
        .find(|(other, _)| *other == title)
    {
        _ if latency.count() == 0 => {}
        Some((_, sum)) => sum.add(latency),
        None => times.push((title, latency.clone())),
    };
    for outcome in all {
        let title = outcome_title(outcome);
        if let Some(latency) = &outcome.latency {
            // What a load does to latency is a picture of two boxes.
            match &outcome.load {
                Some(load) => {
                    if let Some(idle) = &load.idle.latency {
                        add(format!("{title} idle"), idle);
                    }
                    add(format!("{title} under load"), latency);
                }
                None => add(title, latency),
            }
        } else if let Some(transfer) = &outcome.transfer {
            let mbps = transfer.bits_per_s / 1e6;
            match rates.iter_mut().find(|(other, _)| *other == title) {
                Some((_, repeats)) => repeats.push(mbps),
                None => rates.push((title, vec![mbps])),
            }
        }
    }
    let times: Vec<_> = times
        .into_iter()
        .map(|(title, latency)| (title, quantiles(&latency)))
        .collect();
    rates.retain(|(_, repeats)| repeats.len() >= MIN_REPEATS);
    let rates: Vec<_> = rates
        .into_iter()
        .map(|(title, repeats)| (title, quartiles(repeats)))
        .collect();
    plot("us", &times) + &plot("Mb/s", &rates)
}

fn quantiles(latency: &Latency) -> Five {
    let us = |ns: u64| ns as f64 / 1e3;
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| us(latency.quantile(share)));
    [us(latency.min()), low, middle, high, us(latency.max())]
}

fn quartiles(mut values: Vec<f64>) -> Five {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let value = |at: usize| values.get(at).copied().unwrap_or(0.0);
    // Linear between neighbours, as R's type 7.
    [0_u8, 1, 2, 3, 4].map(|quarter| {
        let quarters = usize::from(quarter) * last;
        let below = value(quarters / 4);
        match quarters % 4 {
            0 => below,
            part => below + (value(quarters / 4 + 1) - below) * part as f64 / 4.0,
        }
    })
}

/// On one logarithmic axis.
fn plot(unit: &str, rows: &[(String, Five)]) -> String {
    let ends = rows.iter().flat_map(|(_, five)| [five[0], five[4]]);
    let (low, high) = ends.fold((f64::MAX, 0.0_f64), |(low, high), it| {
        (low.min(it), high.max(it))
    });
    if rows.is_empty() || low <= 0.0 {
        return String::new();
    }
    // A single value needs an axis of some length.
    let (low, high) = (low / 1.02, high * 1.02);
    let step = (high / low).powf(1.0 / (WIDTH - 1) as f64);
    // Between the centres of columns, so that a value is in the nearest one.
    let mut bounds = [low * step.sqrt(); WIDTH - 1];
    for at in 1..bounds.len() {
        bounds[at] = bounds[at - 1] * step;
    }
    let column = |value: f64| bounds.iter().filter(|bound| **bound < value).count();
    let names = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::from("\n");
    for (name, five) in rows {
        let _infallible = writeln!(text, "{name:<names$}  {}", row(five.map(column)));
    }
    let (least, most) = (label(low * 1.02), label(high / 1.02));
    let gap = WIDTH.saturating_sub(least.len() + most.len() + unit.len() + 1);
    let _infallible = writeln!(text, "{:names$}  {least}{:gap$}{most} {unit}", "", "");
    text
}

fn row([least, low, middle, high, most]: [usize; 5]) -> String {
    let mark = |at: usize| match at {
        _ if at == middle => '#',
        _ if at == low => '[',
        _ if at == high => ']',
        _ if at == least || at == most => '|',
        _ if (low..high).contains(&at) => '=',
        _ if (least..most).contains(&at) => '-',
        _ => ' ',
    };
    let row: String = (0..WIDTH).map(mark).collect();
    row.trim_end().to_owned()
}

/// Three digits.
fn label(value: f64) -> String {
    let digits = match value {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_at_their_columns() {
        let row = row([2, 5, 7, 9, 12]);
        assert_eq!(row, "  |--[=#=]--|");
        // The middle shows whatever lies under it.
        assert_eq!(super::row([3, 3, 3, 3, 3]), "   #");
    }

    #[test]
    fn quartiles_match_r() {
        let five = quartiles(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(five, [1.0, 1.75, 2.5, 3.25, 4.0]);
        assert_eq!(quartiles(vec![7.0]), [7.0; 5]);
    }

    #[test]
    fn rows_share_one_axis() {
        let rows = [
            ("a".to_owned(), [10.0, 20.0, 30.0, 40.0, 100.0]),
            ("bcd".to_owned(), [50.0, 60.0, 70.0, 80.0, 1000.0]),
        ];
        let text = plot("us", &rows);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].starts_with("a    |"), "{text}");
        assert!(
            lines[2].starts_with("bcd  ") && lines[2].ends_with('|'),
            "{text}"
        );
        assert!(
            lines[3].contains("10.0") && lines[3].ends_with("1000 us"),
            "{text}"
        );
        assert_eq!(plot("us", &[]), "");
    }
}
