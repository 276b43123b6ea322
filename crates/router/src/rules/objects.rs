//! Rules as a JSON array of objects, whose members are named as the columns of `csv` and are
//! strings, as in `[{"action": "drop", "source": "10.0.0.0/8", "destination_ports": "80-90"}]`.

use std::collections::BTreeMap;
use std::io::Read;

use super::format::Importer;
use super::{RuleSet, csv};
use crate::budget::Budget;
use crate::error::{Fault, Place};
use crate::json;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| head.line.trim_start().starts_with('['),
    read: |content, _, budget| read(content, budget),
};

pub(super) fn read(content: impl Read, budget: &Budget) -> Result<RuleSet, Fault> {
    let mut rules = RuleSet::default();
    json::elements(
        content,
        budget,
        |number, members: BTreeMap<String, String>| {
            let cells = members
                .iter()
                .map(|(name, value)| Ok((csv::column(name)?, value.as_str())));
            let cells: Vec<_> = cells.collect::<Result<_, String>>()?;
            let origin = (Place::Entry(number), &*format!("{members:?}"));
            csv::add(&mut rules, &cells, origin, budget)
        },
    )?;
    Ok(rules)
}
