//! Rows with pseudonyms on their way to another sink. What a column is, its identifier tells, so rows of other
//! programs, whose columns nobody knows, are refused.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema};

use super::Pseudonyms;
use crate::sink::{Error, Sink};
use crate::text;

const ADDRESSES: &[&str] = &[
    "src_ip",
    "dst_ip",
    "Src IP",
    "Dst IP",
    "sourceIPv4Address",
    "sourceIPv6Address",
    "destinationIPv4Address",
    "destinationIPv6Address",
];
const MACS: &[&str] = &[
    "src_mac",
    "dst_mac",
    "sourceMacAddress",
    "destinationMacAddress",
];
const VENDORS: &[&str] = &["src_oui", "dst_oui"];
const FLOWS: &[&str] = &["flow_id", "id", "flowId"];
/// Addresses, ports and protocol, with dashes between.
const CONVERSATION: &str = "Flow ID";
/// Text that names nobody.
const HARMLESS: &[&str] = &[
    "end_reason",
    "tls_ja4",
    "kernel_class",
    "kernel_action",
    "class",
    "label",
    "Label",
];

/// Gives addresses and identifiers pseudonyms in rows on their way to another sink.
pub struct RowAnonymizer {
    inner: Box<dyn Sink>,
    pseudonyms: Pseudonyms,
    /// Of each column.
    kinds: Vec<Kind>,
    /// Rows in which an address could not be read.
    lost: u64,
}

/// What a column has, as far as pseudonyms go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Address,
    Mac,
    Vendor,
    Flow,
    Conversation,
}

impl RowAnonymizer {
    pub fn new(
        inner: Box<dyn Sink>,
        pseudonyms: Pseudonyms,
        rows: &Schema,
    ) -> Result<Self, String> {
        Ok(Self {
            inner,
            pseudonyms,
            kinds: kinds(rows)?,
            lost: 0,
        })
    }

    /// Refuses rows with columns that would tell whose they are, and names these.
    pub fn check(rows: &Schema) -> Result<(), String> {
        kinds(rows).map(|_| ())
    }

    fn rows(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let columns = batch.columns().iter().zip(&self.kinds);
        let columns: Option<Vec<ArrayRef>> = columns
            .map(|(column, kind)| self.column(column, *kind))
            .collect();
        let columns = columns.ok_or(Error::Pseudonyms)?;
        RecordBatch::try_new(batch.schema(), columns).map_err(Error::batch)
    }

    /// None where a value is none of its kind: it must not leave as it is.
    fn column(&self, column: &ArrayRef, kind: Kind) -> Option<ArrayRef> {
        let pseudonyms = &self.pseudonyms;
        match kind {
            Kind::Plain => Some(Arc::clone(column)),
            Kind::Flow => {
                let ids = column.as_primitive_opt::<UInt64Type>()?.iter();
                let ids = ids.map(|id| id.map(|id| pseudonyms.flow(id)));
                Some(Arc::new(ids.collect::<UInt64Array>()))
            }
            Kind::Address => texts(column, |text| {
                let address: IpAddr = text.parse().ok()?;
                written(|out| text::ip(pseudonyms.ip(address), out))
            }),
            Kind::Mac => texts(column, |text| {
                let address = pseudonyms.mac(bytes(text)?);
                written(|out| text::mac(address, out))
            }),
            Kind::Vendor => texts(column, |text| {
                let half = pseudonyms.vendor(bytes(text)?);
                written(|out| text::mac(half, out))
            }),
            Kind::Conversation => texts(column, |text| {
                let mut parts = text.splitn(3, '-');
                let [one, other] = [parts.next()?, parts.next()?];
                let [one, other] = [one.parse().ok()?, other.parse().ok()?];
                let [one, other] = [pseudonyms.ip(one), pseudonyms.ip(other)];
                let mut id = String::new();
                write!(id, "{one}-{other}-{}", parts.next()?).ok()?;
                Some(id)
            }),
        }
    }
}

impl Sink for RowAnonymizer {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let rows = self.rows(batch).inspect_err(|_| {
            self.lost += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
        });
        self.inner.write(&rows?)
    }

    fn idle(&mut self) {
        self.inner.idle();
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.inner.finish()
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn lost(&self) -> u64 {
        self.inner.lost() + self.lost
    }
}

impl std::fmt::Debug for RowAnonymizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowAnonymizer").finish_non_exhaustive()
    }
}

/// What each column has; or those that would tell whose the rows are.
fn kinds(rows: &Schema) -> Result<Vec<Kind>, String> {
    let kinds: Vec<Option<Kind>> = rows.fields().iter().map(|field| kind(field)).collect();
    let fields = rows.fields().iter().zip(&kinds);
    let telling = fields.filter(|(_, kind)| kind.is_none());
    let telling: Vec<&str> = telling.map(|(field, _)| field.name().as_str()).collect();
    if telling.is_empty() {
        return Ok(kinds.into_iter().flatten().collect());
    }
    let columns = telling.join(",");
    Err(format!(
        "--anonymize has no pseudonyms for these columns, which may tell whose the rows are: {columns}; leave them out: --without {columns}"
    ))
}

fn kind(field: &Field) -> Option<Kind> {
    let name = field.name().as_str();
    // Columns that lowroad made; anything may be in others.
    let id = field.metadata().get("id")?;
    if id.split_once('/')?.1 != name {
        return None;
    }
    let lists = [
        (ADDRESSES, Kind::Address),
        (MACS, Kind::Mac),
        (VENDORS, Kind::Vendor),
        (FLOWS, Kind::Flow),
        (&[CONVERSATION][..], Kind::Conversation),
        (HARMLESS, Kind::Plain),
    ];
    let listed = lists.iter().find(|(names, _)| names.contains(&name));
    match (listed, field.data_type()) {
        (Some((_, kind @ Kind::Flow)), DataType::UInt64) => Some(*kind),
        (Some((_, Kind::Flow)), _) => None,
        (Some((_, kind)), DataType::Utf8) => Some(*kind),
        (Some(_), _) => None,
        // Lengths and times of first packets are lists of larger numbers; what is left is bits of headers.
        (None, DataType::FixedSizeList(of, _)) if *of.data_type() == DataType::Int8 => None,
        (None, DataType::FixedSizeList(of, _)) => {
            of.data_type().is_numeric().then_some(Kind::Plain)
        }
        (None, DataType::Boolean | DataType::Timestamp(..)) => Some(Kind::Plain),
        (None, kind) => kind.is_numeric().then_some(Kind::Plain),
    }
}

/// Each text of a column as another one, null where it is null.
fn texts(column: &ArrayRef, of: impl Fn(&str) -> Option<String>) -> Option<ArrayRef> {
    let text = column.as_string_opt::<i32>()?;
    let mut made = StringBuilder::with_capacity(column.len(), 16 * column.len());
    for row in 0..column.len() {
        if column.is_null(row) {
            made.append_null();
            continue;
        }
        made.append_value(of(text.value(row))?);
    }
    Some(Arc::new(made.finish()))
}

fn written(write: impl FnOnce(&mut String) -> bool) -> Option<String> {
    let mut text = String::new();
    write(&mut text).then_some(text)
}

/// Hexadecimal bytes with colons between.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batcher;
    use crate::flow::Limits;
    use crate::schema::{self, SCHEMAS};

    fn rows(name: &str) -> arrow_schema::SchemaRef {
        let schema = schema::find(name).unwrap();
        let columns = schema.flow_columns().unwrap();
        let batcher = Batcher::new(name, columns, &Limits::default());
        batcher.schema().clone()
    }

    #[test]
    fn every_column_of_text_has_pseudonyms_or_is_refused() {
        for schema in SCHEMAS
            .iter()
            .filter(|schema| schema.flow_columns().is_some())
        {
            for field in rows(schema.name).fields() {
                let kind = kind(field);
                let of_payload = ["tls_sni", "dns_name"].contains(&field.name().as_str());
                if of_payload {
                    assert_eq!(kind, None, "{}", field.name());
                }
                let ends = [
                    "_ip", " IP", "Address", "_mac", "_oui", "flow_id", "Flow ID", "flowId",
                ];
                if ends.iter().any(|end| field.name().ends_with(end)) {
                    assert!(
                        kind.is_some_and(|kind| kind != Kind::Plain),
                        "{}",
                        field.name()
                    );
                }
            }
        }
        let refused = RowAnonymizer::check(&rows("flow.v1")).unwrap_err();
        assert!(refused.contains("--without tls_sni"), "{refused}");
        RowAnonymizer::check(&rows("cic.v1")).unwrap();
        RowAnonymizer::check(&rows("tree.v1")).unwrap();
        RowAnonymizer::check(&rows("ipfix")).unwrap();
    }

    #[test]
    fn columns_that_lowroad_did_not_make_are_refused() {
        let foreign = Schema::new(vec![Field::new("customer", DataType::UInt64, true)]);
        let refused = RowAnonymizer::check(&foreign).unwrap_err();
        assert!(refused.contains("customer"), "{refused}");
    }
}
