//! A column: its name, unit, definition and value, all declared in one place.

use std::fmt;

use crate::element::Element;

/// The unit of a column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
    Packets,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    BytesPerSecond,
    PacketsPerSecond,
    /// Variance of lengths.
    SquareBytes,
    /// A count of anything whose noun is in the column's name.
    Count,
    Ratio,
    BitsPerByte,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::BytesPerSecond => "bytes/s",
            Self::PacketsPerSecond => "packets/s",
            Self::SquareBytes => "bytes^2",
            Self::Count => "count",
            Self::Ratio => "ratio",
            Self::BitsPerByte => "bits/byte",
        }
    }
}

/// Calls back with the items of a row's list, in order.
pub type Each<R, T> = fn(&R, &mut dyn FnMut(T));

/// The type of a column and the function that reads its value from a row of type `R`. `None` is null: unknown or
/// undefined.
pub enum Value<R> {
    U8(fn(&R) -> Option<u8>),
    U16(fn(&R) -> Option<u16>),
    U32(fn(&R) -> Option<u32>),
    U64(fn(&R) -> Option<u64>),
    I64(fn(&R) -> Option<i64>),
    F64(fn(&R) -> Option<f64>),
    Bool(fn(&R) -> Option<bool>),
    /// Nanoseconds since the epoch.
    Time(fn(&R) -> Option<i64>),
    /// Writes the text. `false` means null.
    Text(fn(&R, &mut dyn fmt::Write) -> bool),
    /// One item for each of the flow's first packets that the run keeps, padded with nulls.
    I32List(Each<R, i32>),
    U64List(Each<R, u64>),
    Bits(Bits<R>),
}

/// The bits of headers and of the payload bytes that the run keeps.
#[derive(Debug)]
pub struct Bits<R> {
    /// The headers' fields in order, each with its width in bits.
    pub fields: &'static [(&'static str, usize)],
    /// 0 or 1, or -1 if the packet has no such bit.
    pub of: fn(&R) -> &[i8],
}

impl<R> Bits<R> {
    /// The fields and their widths in bits, for a run that keeps `payload_bytes` bytes of each payload.
    pub fn fields(&self, payload_bytes: usize) -> impl Iterator<Item = (&'static str, usize)> {
        let payload = (payload_bytes > 0).then_some(("payload_bit", 8 * payload_bytes));
        self.fields.iter().copied().chain(payload)
    }

    /// The sum of all widths, in bits.
    pub fn width(&self, payload_bytes: usize) -> usize {
        self.fields(payload_bytes).map(|(_, bits)| bits).sum()
    }
}

/// One column of a schema whose rows are made from `R`.
pub struct Column<R> {
    pub name: &'static str,
    pub unit: Unit,
    /// One unambiguous sentence.
    pub definition: &'static str,
    /// The column requires the packets' bytes, which some datapaths do not supply.
    pub needs_payload: bool,
    /// The column describes the state of a connection. The state is tracked only if such a column is present.
    pub needs_connection: bool,
    /// The IPFIX element of the column.
    pub element: Option<Element>,
    pub value: Value<R>,
}

impl<R> Column<R> {
    pub const fn new(
        name: &'static str,
        unit: Unit,
        definition: &'static str,
        value: Value<R>,
    ) -> Self {
        Self {
            name,
            unit,
            definition,
            needs_payload: false,
            needs_connection: false,
            element: None,
            value,
        }
    }

    pub const fn exported_as(mut self, element: Element) -> Self {
        self.element = Some(element);
        self
    }

    pub const fn from_payload(mut self) -> Self {
        self.needs_payload = true;
        self
    }

    /// Marks a column that is computed from checksums and TCP options. A datapath that supplies these also supplies
    /// payloads.
    pub const fn from_connection(mut self) -> Self {
        self.needs_connection = true;
        self.from_payload()
    }
}

impl<R> Value<R> {
    /// Whether the column lists a flow's first packets.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::I32List(_) | Self::U64List(_))
    }

    /// The type's name, as `lowroad features schema` shows it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::U16(_) => "u16",
            Self::U32(_) => "u32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::Time(_) => "timestamp",
            Self::Text(_) => "text",
            Self::I32List(_) => "list of i32",
            Self::U64List(_) => "list of u64",
            Self::Bits(_) => "list of i8",
        }
    }
}

impl<R> Clone for Value<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Value<R> {}

impl<R> Clone for Bits<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Bits<R> {}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

impl<R> fmt::Debug for Value<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl<R> fmt::Debug for Column<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.value.kind())
    }
}
