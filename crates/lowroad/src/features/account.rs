//! What became of every packet, in words and as JSON.

use anyhow::anyhow;
use features::counters::{Counters, REFUSALS};
use serde_json::{Map, Value, json};

use crate::exit::Failure;

/// The failure of an account that does not add up.
pub(super) fn check(counters: &Counters) -> Result<(), Failure> {
    match counters.unaccounted() {
        0 => Ok(()),
        packets => Err(Failure::Failed(anyhow!(
            "{packets} packets are unaccounted for: the rows cannot be relied on"
        ))),
    }
}

/// The account of a run, with what only some datapaths count.
pub(super) fn json(counters: &Counters, rows: (u64, u64), more: Value) -> Value {
    let (seen, exported) = (&counters.seen, &counters.exported);
    let drops: Map<String, Value> = REFUSALS
        .iter()
        .map(|&why| (why.name().to_owned(), seen.refused(why).into()))
        .collect();
    let mut account = json!({
        "packets": seen.packets,
        "bytes": seen.bytes,
        "packets_exported": exported.packets,
        "packets_unaccounted": i64::try_from(counters.unaccounted()).unwrap_or(i64::MAX),
        "flows": exported.flows,
        "rows": rows.0,
        "rows_lost": rows.1,
        "early_rows": exported.early_rows,
        "stream_gaps": exported.stream_gaps,
        "table_full": exported.table_full,
        "lone_fragments": seen.lone_fragments,
        "filtered": seen.filtered,
        "sampled_out": seen.sampled_out,
        "drops": drops,
    });
    if let (Some(account), Value::Object(more)) = (account.as_object_mut(), more) {
        account.extend(more);
    }
    account
}

/// The same as a line, without what did not happen.
pub(super) fn words(counters: &Counters, rows: u64) -> String {
    let (seen, exported) = (&counters.seen, &counters.exported);
    let mut text = format!(
        "{} packets, {} flows, {rows} rows",
        seen.packets, exported.flows
    );
    for (packets, what) in [
        (seen.filtered, "filtered"),
        (seen.sampled_out, "sampled out"),
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
