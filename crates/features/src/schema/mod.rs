//! The schemas: versioned lists of columns. A column is added only in its schema's file. Columns that several schemas
//! share are in `shared` or `flags`, and each schema names them.

mod cic;
mod columns;
mod conn;
mod flags;
mod flow;
mod ipfix;
mod kernel_class;
mod nfstream;
mod nprint;
mod packet;
mod shared;
mod tree;
mod without;

use crate::column::Column;
use crate::flow::Flow;
use crate::options::Options;
use crate::packets::{Bits, Facts};

/// A named list of columns. The name includes the version, so another version is another schema.
#[derive(Debug)]
pub struct Schema {
    pub name: &'static str,
    /// The purpose of the schema.
    pub about: &'static str,
    pub rules: Rules,
    pub rows: Rows,
}

/// The rules by which packets form flows, if the schema's original tool prescribes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// According to the options.
    Own,
    /// As in NFStream: only timeouts end a flow, and VLAN ids distinguish flows.
    NfStream,
}

/// The subject of the rows.
#[derive(Debug)]
pub enum Rows {
    Flows(&'static [&'static [Column<Flow>]]),
    /// Packets, by the values in their headers.
    Packets(&'static [&'static [Column<Facts>]]),
    /// Packets, by the bits of their headers.
    Bits(&'static [&'static [Column<Bits>]]),
}

/// A column without the code that computes it.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    pub name: &'static str,
    pub kind: &'static str,
    pub unit: &'static str,
    pub definition: &'static str,
    pub needs_payload: bool,
    pub needs_connection: bool,
}

/// All schemas, the default first.
pub const SCHEMAS: &[Schema] = &[
    flow::SCHEMA,
    cic::SCHEMA,
    nfstream::SCHEMA,
    ipfix::SCHEMA,
    packet::SCHEMA,
    nprint::SCHEMA,
    tree::SCHEMA,
    conn::SCHEMA,
];

/// A time in the form of `cic.v1`.
pub(crate) fn microseconds(nanoseconds: u64) -> f64 {
    cic::micros(nanoseconds)
}

/// The schema with this name.
pub fn find(name: &str) -> Option<&'static Schema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}

impl Schema {
    /// This schema with two more columns: the class that a model in the kernel assigned to each flow, and its action.
    pub fn with_kernel_class(&'static self) -> &'static Self {
        kernel_class::widen(self)
    }

    /// The options that this schema's flows require, based on the given ones.
    pub fn options(&self, asked: &Options) -> Options {
        let mut options = asked.clone();
        if self.rules == Rules::NfStream {
            options.timers.linger_ns = None;
            options.by_vlan = true;
            options.ignore_icmp_id = true;
        }
        let columns = self.columns();
        let mut readers = columns.iter().filter(|column| column.needs_payload);
        options.limits.payloads &= readers.any(|column| !column.needs_connection);
        options.limits.connections = columns.iter().any(|column| column.needs_connection);
        if self.flow_columns().is_none() {
            options.limits.steps = 0;
            options.limits.early_packets = None;
        }
        options
    }

    /// The columns, if the rows are about flows.
    pub fn flow_columns(&self) -> Option<&'static [&'static [Column<Flow>]]> {
        match self.rows {
            Rows::Flows(columns) => Some(columns),
            Rows::Packets(_) | Rows::Bits(_) => None,
        }
    }

    /// Whether the rows are the bits of packets.
    pub fn has_bits(&self) -> bool {
        matches!(self.rows, Rows::Bits(_))
    }

    /// Whether any column requires the packets' bytes in addition to the header fields.
    pub fn needs_payload(&self) -> bool {
        self.columns().iter().any(|column| column.needs_payload)
    }

    pub fn columns(&self) -> Vec<Description> {
        match &self.rows {
            Rows::Flows(columns) => describe(columns),
            Rows::Packets(columns) => describe(columns),
            Rows::Bits(columns) => describe(columns),
        }
    }
}

fn describe<R>(groups: &[&[Column<R>]]) -> Vec<Description> {
    let describe = |column: &Column<R>| Description {
        name: column.name,
        kind: column.value.kind(),
        unit: column.unit.name(),
        definition: column.definition,
        needs_payload: column.needs_payload,
        needs_connection: column.needs_connection,
    };
    groups.iter().copied().flatten().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn connections_and_payloads_cost_those_schemas_alone_that_have_columns_of_them() {
        let costs = |schema: &Schema| {
            let limits = schema.options(&Options::default()).limits;
            (limits.payloads, limits.connections)
        };
        let of = |name: &str| costs(find(name).unwrap());
        assert_eq!(
            (of("flow.v1"), of("cic.v1")),
            ((true, false), (false, false))
        );
        assert_eq!(of("conn.v1"), (false, true));
        let schema = find("conn.v1").unwrap();
        let columns = schema.columns();
        let followed = columns.iter().filter(|column| column.needs_connection);
        let names: Vec<String> = followed.map(|column| column.name.to_owned()).collect();
        assert_eq!(costs(schema.with_null(&names)), (false, false));
        assert_eq!(costs(schema.without(&names).unwrap()), (false, false));
    }

    #[test]
    fn names_are_unique_and_every_column_is_defined() {
        for schema in SCHEMAS {
            let columns = schema.columns();
            let names: HashSet<&str> = columns.iter().map(|column| column.name).collect();
            assert_eq!(names.len(), columns.len(), "{}", schema.name);
            for column in columns {
                assert!(column.definition.ends_with('.'), "{}", column.name);
            }
        }
    }
}
