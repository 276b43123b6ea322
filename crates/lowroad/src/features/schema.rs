//! `lowroad features schema`: the schemas, and the definitions of their columns.

use features::live::givers;
use features::schema::{self, SCHEMAS, Schema};
use serde_json::{Value, json};

use crate::exit::{self, Failure};

pub(super) fn find(name: &str) -> Result<&'static Schema, Failure> {
    schema::find(name).ok_or_else(|| {
        let names: Vec<&str> = SCHEMAS.iter().map(|schema| schema.name).collect();
        let names = names.join(", ");
        Failure::Input(format!("no schema is called \"{name}\"; there are {names}"))
    })
}

pub(super) fn list(json: bool) -> Result<(), Failure> {
    if json {
        let names: Vec<Value> = SCHEMAS
            .iter()
            .map(|schema| json!({"name": schema.name, "about": schema.about}))
            .collect();
        return exit::print(&format!("{:#}\n", Value::from(names)));
    }
    let lines: Vec<String> = SCHEMAS
        .iter()
        .map(|schema| {
            let columns = schema.columns().len();
            format!(
                "{:<12} {columns:>4} columns  {}\n",
                schema.name, schema.about
            )
        })
        .collect();
    exit::print(&lines.concat())
}

pub(super) fn describe(schema: &Schema, json: bool) -> Result<(), Failure> {
    let columns = schema.columns();
    if json {
        let columns: Vec<Value> = columns
            .iter()
            .map(|column| {
                json!({
                    "name": column.name,
                    "type": column.kind,
                    "unit": column.unit,
                    "definition": column.definition,
                    "needs_payload": column.needs_payload,
                    "datapaths": givers(schema, column),
                })
            })
            .collect();
        return exit::print(&format!("{:#}\n", Value::from(columns)));
    }
    let width = columns.iter().map(|column| column.name.len()).max();
    let width = width.unwrap_or(0);
    let lines: Vec<String> = columns
        .iter()
        .map(|column| {
            let (name, kind, unit) = (column.name, column.kind, column.unit);
            format!(
                "{name:<width$}  {kind:<11}  {unit:<9}  {}\n",
                column.definition
            )
        })
        .collect();
    exit::print(&lines.concat())
}
