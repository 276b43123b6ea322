//! Which format a file of rules has.

use crate::error::{Fault, Place};
use crate::named::named;

/// Formats of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// ClassBench's filter sets.
    ClassBench,
    /// What `iptables-save` and `ip6tables-save` write.
    Iptables,
    /// What `nft -j list ruleset` writes.
    Nft,
    /// A table of our own: a header line that names columns, then a rule a line.
    Csv,
    /// The same as a JSON array of objects.
    Json,
}

/// A name that is no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no format of rules: classbench, iptables, nft, csv or json")]
pub struct UnknownFormat(String);

named! { Format or UnknownFormat:
    ClassBench = "classbench",
    Iptables = "iptables",
    Nft = "nft",
    Csv = "csv",
    Json = "json",
}

pub(super) fn detect(head: &[u8]) -> Result<Format, Fault> {
    let head = String::from_utf8_lossy(head);
    let said = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let line = head.lines().find(said).unwrap_or_default();
    if head.trim_start().starts_with('{') && head.contains("\"nftables\"") {
        Ok(Format::Nft)
    } else if line.starts_with('@') {
        Ok(Format::ClassBench)
    } else if line.starts_with('*') {
        Ok(Format::Iptables)
    } else if line.trim_start().starts_with('[') {
        Ok(Format::Json)
    } else if line.split(',').any(|column| column.trim() == "action") {
        Ok(Format::Csv)
    } else {
        let what =
            "no format of rules begins so: name it, one of classbench, iptables, nft, csv, json";
        Err(Fault::new(Place::File, what))
    }
}
