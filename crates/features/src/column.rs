//! A column: its name, its unit, what it means, and how a row gives it. One place for each.

use std::fmt;

use crate::element::Element;

/// What a column's numbers count.
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
    /// Anything that is counted and has a noun in its name.
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

/// Hands over the items of a row's list, in order.
pub type Each<R, T> = fn(&R, &mut dyn FnMut(T));

/// How a row of type `R` gives a value, and of which type. `None` is null: not known, or not defined.
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
    /// Writes the text; false is null.
    Text(fn(&R, &mut dyn fmt::Write) -> bool),
    /// As many as the run keeps of each flow's first packets, padded with nulls.
    I32List(Each<R, i32>),
    U64List(Each<R, u64>),
    Bits(Bits<R>),
}

/// Bits of headers, and of as many bytes of payload as the run keeps.
#[derive(Debug)]
pub struct Bits<R> {
    /// The headers' fields in order, and how many bits each has.
    pub fields: &'static [(&'static str, usize)],
    /// 0 and 1, or -1 where the packet has no such bit.
    pub of: fn(&R) -> &[i8],
}

impl<R> Bits<R> {
    /// Fields, and the bits of each, for a run that keeps so much of payloads.
    pub fn fields(&self, payload_bytes: usize) -> impl Iterator<Item = (&'static str, usize)> {
        let payload = (payload_bytes > 0).then_some(("payload_bit", 8 * payload_bytes));
        self.fields.iter().copied().chain(payload)
    }

    /// All of them.
    pub fn width(&self, payload_bytes: usize) -> usize {
        self.fields(payload_bytes).map(|(_, bits)| bits).sum()
    }
}

/// One column of a schema whose rows are made from `R`.
pub struct Column<R> {
    pub name: &'static str,
    pub unit: Unit,
    /// One sentence that leaves no choice.
    pub definition: &'static str,
    /// It needs the packets themselves, which not every datapath hands over.
    pub needs_payload: bool,
    /// It is of the state of a connection, which is followed for such columns only.
    pub needs_connection: bool,
    /// What it is in IPFIX.
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

    /// Made from the checksums and options of the packets: whoever hands these over hands over payloads, too.
    pub const fn from_connection(mut self) -> Self {
        self.needs_connection = true;
        self.from_payload()
    }
}

impl<R> Value<R> {
    /// Whether it lists a flow's first packets.
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
