//! Rows with pseudonyms on their way to another sink. A column's identifier in the metadata tells what it holds, so
//! rows of other programs, whose columns are unknown, are refused.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
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
/// TEIDs are of one subscriber each.
const TUNNELS: &[&str] = &["tunnel_id", "bwd_tunnel_id"];
const SEGMENTS: &[&str] = &["layer2SegmentId"];
/// Addresses, ports and protocol, joined by dashes.
const CONVERSATION: &str = "Flow ID";
/// Text that a host chose.
const NAMES: &[&str] = &["tls_sni", "tls_alpn", "dns_name", "quic_sni", "quic_alpn"];
/// Text that identifies no host. Labels and classes are the user's own words.
const HARMLESS: &[&str] = &[
    "end_reason",
    "tls_ja4",
    "quic_ja4",
    "conn_state",
    "history",
    "syn_fingerprint",
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
    /// One for each column.
    kinds: Vec<Kind>,
    /// Rows of batches with a value that has no pseudonym.
    lost: u64,
}

/// What a column identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No host: its values stay.
    Plain,
    Address,
    Mac,
    Vendor,
    Flow,
    Tunnel,
    Segment,
    Conversation,
    Name,
}

impl RowAnonymizer {
    /// `inner` takes rows of the same schema.
    ///
    /// # Errors
    /// Those of [`Self::check`].
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

    /// Refuses rows with columns that may identify a host and have no pseudonyms.
    ///
    /// # Errors
    /// A message that names these columns.
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

    /// None if a value is not of the column's kind: such a value must not leave as it is.
    fn column(&self, column: &ArrayRef, kind: Kind) -> Option<ArrayRef> {
        let pseudonyms = &self.pseudonyms;
        match kind {
            Kind::Plain => Some(Arc::clone(column)),
            Kind::Flow => {
                let ids = column.as_primitive_opt::<UInt64Type>()?;
                let ids: PrimitiveArray<UInt64Type> = ids.unary(|id| pseudonyms.flow(id));
                Some(Arc::new(ids))
            }
            Kind::Segment => {
                let ids = column.as_primitive_opt::<UInt64Type>()?;
                let ids: PrimitiveArray<UInt64Type> = ids.unary(|id| pseudonyms.segment(id));
                Some(Arc::new(ids))
            }
            Kind::Tunnel => {
                let ids = column.as_primitive_opt::<UInt32Type>()?;
                let ids: PrimitiveArray<UInt32Type> = ids.unary(|id| pseudonyms.tunnel(id));
                Some(Arc::new(ids))
            }
            Kind::Name => texts(column, |text| Some(pseudonyms.name(text))),
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

/// The kind of each column; an error names those that may identify a host and have no pseudonyms.
fn kinds(rows: &Schema) -> Result<Vec<Kind>, String> {
    let kinds: Vec<Option<Kind>> = rows.fields().iter().map(|field| kind(field)).collect();
    let fields = rows.fields().iter().zip(&kinds);
    let refused = fields.filter(|(_, kind)| kind.is_none());
    let refused: Vec<&Field> = refused.map(|(field, _)| field.as_ref()).collect();
    if refused.is_empty() {
        return Ok(kinds.into_iter().flatten().collect());
    }
    if refused.iter().any(|field| is_bits(field.data_type())) {
        return Err(
            "--anonymize: the bits of headers hold addresses, which have no pseudonyms there; choose another schema"
                .to_owned(),
        );
    }
    let refused: Vec<&str> = refused.iter().map(|field| field.name().as_str()).collect();
    let columns = refused.join(", ");
    Err(format!(
        "--anonymize: these columns may identify a host and have no pseudonyms: {columns}; leave them out of the rows"
    ))
}

fn kind(field: &Field) -> Option<Kind> {
    let name = field.name().as_str();
    // The columns of other programs may hold anything.
    let id = field.metadata().get("id")?;
    if id.split_once('/')?.1 != name {
        return None;
    }
    let lists = [
        (ADDRESSES, Kind::Address, DataType::Utf8),
        (MACS, Kind::Mac, DataType::Utf8),
        (VENDORS, Kind::Vendor, DataType::Utf8),
        (FLOWS, Kind::Flow, DataType::UInt64),
        (TUNNELS, Kind::Tunnel, DataType::UInt32),
        (SEGMENTS, Kind::Segment, DataType::UInt64),
        (&[CONVERSATION], Kind::Conversation, DataType::Utf8),
        (NAMES, Kind::Name, DataType::Utf8),
        (HARMLESS, Kind::Plain, DataType::Utf8),
    ];
    let found = field.data_type();
    if let Some((_, kind, of)) = lists.iter().find(|(names, ..)| names.contains(&name)) {
        return (found == of).then_some(*kind);
    }
    // Lengths and times of a flow's first packets are lists.
    let is_number = match found {
        DataType::FixedSizeList(of, _) => of.data_type().is_numeric() && !is_bits(found),
        DataType::Boolean | DataType::Timestamp(..) => true,
        found => found.is_numeric(),
    };
    is_number.then_some(Kind::Plain)
}

/// Whether a column has the bits of headers, addresses included.
fn is_bits(column: &DataType) -> bool {
    matches!(column, DataType::FixedSizeList(of, _) if *of.data_type() == DataType::Int8)
}

/// A pseudonym for each text of a column; null stays null.
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

/// Hexadecimal bytes, separated by colons.
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
    use arrow_array::StringArray;

    use super::super::Key;
    use super::*;
    use crate::Options;
    use crate::labels::labelled_schema;
    use crate::schema::{self, SCHEMAS};
    use crate::sink::{Nowhere, SchemaRef, scored_schema};

    /// Columns with such words that identify no host: ports, protocols, and numbers of packets and networks.
    const PORTS_AND_NUMBERS: &[&str] = &[
        "src_port",
        "dst_port",
        "Src Port",
        "Dst Port",
        "protocolIdentifier",
        "icmp_id",
        "ip_id",
        "vlan_id",
        "vlanId",
        "expiration_id",
        "Fwd Seg Size Min",
    ];

    /// The rows of a schema with all columns that a run can add to it.
    fn rows(schema: &'static schema::Schema) -> SchemaRef {
        let rows = crate::arrow_schema(schema.with_kernel_class(), &Options::default());
        let rows = labelled_schema(&rows).unwrap_or(rows);
        scored_schema(&rows)
    }

    #[test]
    fn every_column_is_listed_or_a_number() {
        for schema in SCHEMAS {
            let rows = rows(schema);
            for field in rows.fields() {
                let name = field.name();
                assert!(
                    kind(field).is_some() || is_bits(field.data_type()),
                    "{}/{name}: neither a pseudonym nor in HARMLESS",
                    schema.name
                );
            }
            assert_eq!(RowAnonymizer::check(&rows).is_err(), schema.has_bits());
        }
        let bits = RowAnonymizer::check(&rows(schema::find("nprint.v1").unwrap())).unwrap_err();
        assert!(bits.contains("choose another schema"), "{bits}");
    }

    #[test]
    fn columns_about_addresses_have_pseudonyms() {
        for schema in SCHEMAS {
            for field in rows(schema).fields() {
                let definition = field.metadata().get("definition").unwrap();
                let name = field.name().to_lowercase();
                let mut words = definition.split(|c: char| !c.is_alphanumeric());
                let may_identify = words.any(|word| {
                    ["address", "addresses", "name", "identifier", "keys"]
                        .contains(&word.to_lowercase().as_str())
                }) || ["ip", "mac", "oui", "id"]
                    .iter()
                    .any(|end| name.ends_with(end));
                let is_listed = PORTS_AND_NUMBERS.contains(&field.name().as_str());
                if may_identify && !is_listed && !is_bits(field.data_type()) {
                    let found = kind(field);
                    assert!(
                        found.is_some_and(|kind| kind != Kind::Plain),
                        "{}/{}: {found:?}",
                        schema.name,
                        field.name()
                    );
                }
            }
        }
    }

    #[test]
    fn columns_of_other_programs_are_refused() {
        let foreign = Field::new("customer", DataType::UInt64, true);
        let renamed = Field::new("customer", DataType::UInt64, true)
            .with_metadata([("id".to_owned(), "flow.v1/packets".to_owned())].into());
        let retyped = Field::new("src_ip", DataType::UInt32, true)
            .with_metadata([("id".to_owned(), "flow.v1/src_ip".to_owned())].into());
        for field in [foreign, renamed, retyped] {
            let name = field.name().clone();
            let refused = RowAnonymizer::check(&Schema::new(vec![field])).unwrap_err();
            assert!(refused.contains(&name), "{refused}");
        }
    }

    #[test]
    fn a_value_without_a_pseudonym_is_lost_and_counted() {
        let id = "flow.v1/src_ip".to_owned();
        let field = Field::new("src_ip", DataType::Utf8, true);
        let field = field.with_metadata([("id".to_owned(), id)].into());
        let schema = Arc::new(Schema::new(vec![field]));
        let pseudonyms = Pseudonyms::new(&Key::read(&[7; 32]).unwrap());
        let mut sink = RowAnonymizer::new(Box::new(Nowhere), pseudonyms, &schema).unwrap();
        let mut write = |texts: [Option<&str>; 2]| {
            let column: ArrayRef = Arc::new(StringArray::from_iter(texts));
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
            let result = sink.write(&batch);
            (result.is_ok(), sink.lost())
        };
        assert_eq!(write([Some("192.0.2.1"), None]), (true, 0));
        assert_eq!(write([Some("192.0.2.1"), Some("host.example")]), (false, 2));
    }
}
