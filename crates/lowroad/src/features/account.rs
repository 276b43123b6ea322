//! A run's account as text.

use features::counters::{Counters, REFUSALS};

/// The account of a run as a line, without what did not happen.
pub(super) fn words(counters: &Counters, rows: u64) -> String {
    let (seen, exported) = (&counters.seen, &counters.exported);
    let mut text = format!(
        "{} packets, {} flows, {rows} rows",
        seen.packets, exported.flows
    );
    for (packets, what) in [
        (seen.filtered, "filtered"),
        (seen.sampled_out, "sampled out"),
        (seen.rate_limited, "over the rate limit"),
        (seen.unread, "unread: the output had failed"),
    ] {
        if packets > 0 {
            text += &format!(", {packets} {what}");
        }
    }
    for why in REFUSALS {
        if seen.refused(why) > 0 {
            text += &format!(", {} {}", seen.refused(why), why.name());
        }
    }
    if exported.table_full > 0 {
        text += &format!(", {} flows exported early: table full", exported.table_full);
    }
    text
}

/// A line about rows that a model did not score, if there are any.
pub(super) fn without_score(rows: Option<u64>) -> String {
    match rows {
        None | Some(0) => String::new(),
        Some(rows) => format!("{rows} rows without a score\n"),
    }
}
