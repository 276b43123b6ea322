//! A schema with what a model in the kernel says of each flow, for the rows of a run that has one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::{Rows, Schema, ipfix};
use crate::column::{Column, Unit, Value};
use crate::flow::{Classification, Flow};

/// Every schema that was widened, by its address, once each: schemas live as long as the program.
static WIDER: Mutex<Option<HashMap<usize, &'static Schema>>> = Mutex::new(None);

const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "kernel_class",
        Unit::None,
        "The latest class of the flow by the model in the kernel; null if it was not asked before the row was exported.",
        Value::Text(|f, out| write(f, out, |flow| flow.class)),
    ),
    Column::new(
        "kernel_action",
        Unit::None,
        "The action of that class: pass, drop, sample or mark; what it would be with --shadow.",
        Value::Text(|f, out| write(f, out, |flow| flow.action)),
    ),
];

/// The schema with the class of each flow, and its action. IPFIX has no elements for them, and packets no class: such a
/// schema stays as it is.
pub(super) fn widen(schema: &'static Schema) -> &'static Schema {
    let Rows::Flows(groups) = schema.rows else {
        return schema;
    };
    if schema.name == ipfix::SCHEMA.name {
        return schema;
    }
    let mut made = WIDER.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    made.entry(std::ptr::from_ref(schema).addr())
        .or_insert_with(|| {
            let groups = groups.iter().copied().chain([COLUMNS]);
            let rows = Rows::Flows(groups.collect::<Vec<_>>().leak());
            Box::leak(Box::new(Schema { rows, ..*schema }))
        })
}

fn write(
    flow: &Flow,
    out: &mut dyn std::fmt::Write,
    of: fn(Classification) -> &'static str,
) -> bool {
    let classification = flow
        .remarks
        .as_ref()
        .and_then(|remarks| remarks.classification);
    classification.is_some_and(|classification| out.write_str(of(classification)).is_ok())
}

#[cfg(test)]
mod tests {
    use crate::schema::find;

    #[test]
    fn rows_about_flows_get_a_class_but_for_ipfix() {
        for name in ["flow.v1", "cic.v1", "nfstream.v1", "tree.v1"] {
            let schema = find(name).unwrap();
            let wider = schema.with_kernel_class();
            assert_eq!(wider.columns().len(), schema.columns().len() + 2, "{name}");
            assert!(std::ptr::eq(wider, schema.with_kernel_class()));
        }
        for name in ["ipfix", "packet.v1", "nprint.v1"] {
            let schema = find(name).unwrap();
            assert!(std::ptr::eq(schema, schema.with_kernel_class()), "{name}");
        }
    }
}
