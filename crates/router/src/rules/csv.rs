//! Rules as a table: the first line names the columns, each line is a rule, the first match counts.
//!
//! Columns: `action` (accept, drop or punt), `source`, `destination` (a prefix, an address or
//! ADDRESS-ADDRESS), `source_ports`, `destination_ports` (a port or LOW-HIGH), `protocol` (a number,
//! tcp, udp, icmp, ...). Only `action` must be there; what is left out or empty is any. A rule
//! without addresses is for both families. `#` at its beginning makes a line a comment.

use std::io::BufRead;

use acl::Action;

use super::format::Importer;
use super::region::{Field, Region};
use super::{RuleSet, values};
use crate::budget::Budget;
use crate::error::{Fault, Place};
use crate::lines::Lines;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| {
        let mut columns = head.line.split(',');
        !head.line.trim_start().starts_with('[') && columns.any(|column| column.trim() == "action")
    },
    read: |content, _, budget| read(content, budget),
};

pub(super) fn read(content: impl BufRead, budget: &Budget) -> Result<RuleSet, Fault> {
    let mut columns: Option<Vec<Column>> = None;
    let mut rules = RuleSet::default();
    let mut lines = Lines::new(content);
    while let Some((number, line)) = lines.next()? {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |what| Fault::line(number, what);
        let Some(columns) = &columns else {
            let named: Result<_, _> = line.split(',').map(column).collect();
            columns = Some(named.map_err(fault)?);
            continue;
        };
        let cells = cells(columns, line).map_err(fault)?;
        add(&mut rules, &cells, (Place::Line(number), line), budget).map_err(fault)?;
    }
    Ok(rules)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Action,
    Of(Field),
}

pub(super) fn column(name: &str) -> Result<Column, String> {
    Ok(match name.trim() {
        "action" => Column::Action,
        "source" => Column::Of(Field::Source),
        "destination" => Column::Of(Field::Destination),
        "source_ports" => Column::Of(Field::SourcePort),
        "destination_ports" => Column::Of(Field::DestinationPort),
        "protocol" => Column::Of(Field::Protocol),
        other => {
            return Err(format!(
                "no column {other:?}: action, source, destination, source_ports, destination_ports, protocol"
            ));
        }
    })
}

/// The values of a line.
fn cells<'a>(columns: &[Column], line: &'a str) -> Result<Vec<(Column, &'a str)>, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    if cells.len() != columns.len() {
        let (found, wanted) = (cells.len(), columns.len());
        return Err(format!(
            "{found} columns, where the first line names {wanted}"
        ));
    }
    Ok(columns.iter().copied().zip(cells).collect())
}

/// Adds the rule that these values make.
pub(super) fn add(
    rules: &mut RuleSet,
    cells: &[(Column, &str)],
    (place, text): (Place, &str),
    budget: &Budget,
) -> Result<(), String> {
    let (regions, action) = rule(cells, budget)?;
    let origin = rules.origin(place, text, budget)?;
    for region in regions {
        region.emit(action, origin, rules, budget)?;
    }
    Ok(())
}

fn rule(cells: &[(Column, &str)], budget: &Budget) -> Result<(Vec<Region>, Action), String> {
    let mut regions = vec![Region::all(false), Region::all(true)];
    let mut action = None;
    for (column, cell) in cells {
        match column {
            Column::Action => action = Some(values::action(cell)?),
            Column::Of(_) if cell.is_empty() => {}
            Column::Of(field @ (Field::Source | Field::Destination)) => {
                let (v6, addresses) = values::addresses(cell)?;
                regions.retain(|region| region.v6 == v6);
                for region in &mut regions {
                    region.keep(*field, &addresses, false, budget)?;
                }
            }
            Column::Of(Field::Protocol) => {
                let protocol = values::protocol(cell)?;
                for region in &mut regions {
                    region.keep(Field::Protocol, &protocol, false, budget)?;
                }
            }
            Column::Of(field) => {
                let ports = values::ports(cell, '-')?;
                for region in &mut regions {
                    region.keep(*field, &ports, false, budget)?;
                }
            }
        }
    }
    if regions.is_empty() {
        return Err("source and destination are of different families".into());
    }
    Ok((regions, action.ok_or("no action")?))
}
