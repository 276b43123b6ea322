//! Rules that packets meet and rules that they do not: how both are spoken of.

use crate::error::Place;

pub(super) const NO_CHAIN: &str = "no chain that packets of this hook pass";

pub(super) const TRANSLATION: &str = "replies of a translated connection match no rule, so that translation cannot be shared with the kernel";

/// So many chains are named.
const MAX_NAMES: usize = 6;

/// What to do about a table that is refused, where the file has these others.
pub(super) fn suggest_tables(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return "remove the rule".to_owned();
    }
    let quoted = names.iter().map(|name| {
        if name.contains(' ') {
            format!("'{name}'")
        } else {
            name.clone()
        }
    });
    let names = quoted.take(MAX_NAMES).collect::<Vec<_>>().join(",");
    format!("import other tables only, as by --rules-table {names}")
}

/// A note on rules in chains that no packet comes to, by the place and the chain of each; nothing if there are none.
pub(super) fn describe_unreachable(
    rules: impl Iterator<Item = (Place, String)>,
) -> Option<(Place, String)> {
    let (mut count, mut first) = (0_u64, None);
    let mut chains: Vec<String> = Vec::new();
    let mut last = String::new();
    let mut more = false;
    for (place, chain) in rules {
        count += 1;
        first.get_or_insert(place);
        if chain == last || chains.contains(&chain) {
            continue;
        }
        if chains.len() < MAX_NAMES {
            chains.push(chain.clone());
        } else {
            more = true;
        }
        last = chain;
    }
    let noun = if count == 1 { "rule" } else { "rules" };
    let chains = chains.join(", ");
    let more = if more { ", ..." } else { "" };
    let what = format!(
        "{count} {noun} in chains that packets of this hook do not pass: left out: {chains}{more}"
    );
    first.map(|place| (place, what))
}
