//! Column names for formats without lists: each item of a list is a column. `splt_payload` becomes
//! `splt_payload_0` and so on. Bits of packets have the names of their header fields: `ipv4_ver_0`.

use arrow_schema::{DataType, Field};

use crate::batch::FIELDS;

/// The names of the columns that replace a field.
pub(super) fn names(field: &Field) -> Vec<String> {
    let DataType::FixedSizeList(_, size) = field.data_type() else {
        return vec![field.name().clone()];
    };
    let size = usize::try_from(*size).unwrap_or(0);
    let fields = field.metadata().get(FIELDS);
    // A file of another program may have metadata that does not match the length of the list.
    let fields = fields.map(|fields| fields.split(',').flat_map(numbered).collect());
    let fields = fields.filter(|names: &Vec<String>| names.len() == size);
    fields.unwrap_or_else(|| items(field.name(), size).collect())
}

/// The names that `ipv4_ver:4` stands for.
fn numbered(part: &str) -> impl Iterator<Item = String> {
    let (name, count) = part.split_once(':').unwrap_or((part, "0"));
    items(name, count.parse().unwrap_or(0))
}

fn items(name: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |item| format!("{name}_{item}"))
}
