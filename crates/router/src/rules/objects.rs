//! Rules as a JSON array of objects, whose members are named as the columns of `csv` and are
//! strings, as in `[{"action": "drop", "source": "10.0.0.0/8", "destination_ports": "80-90"}]`.

use std::collections::BTreeMap;
use std::io::Read;

use super::format::Importer;
use super::{RuleSet, csv};
use crate::error::{Fault, Place};
use crate::json;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| head.line.trim_start().starts_with('['),
    read: |content, _| read(content),
};

pub(super) fn read(content: impl Read) -> Result<RuleSet, Fault> {
    let mut rules = RuleSet::default();
    let mut number = 0;
    let mut add = |members: BTreeMap<String, String>| {
        number += 1;
        let cells = members
            .iter()
            .map(|(name, value)| Ok((csv::column(name)?, value.as_str())));
        let cells: Vec<_> = cells.collect::<Result<_, String>>()?;
        csv::add(
            &mut rules,
            &cells,
            Place::Entry(number),
            &format!("{members:?}"),
        )
    };
    json::elements(content, &mut add)?;
    Ok(rules)
}
