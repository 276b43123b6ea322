//! How rows become data records: each column's element, and a template for each set of columns that
//! rows have values in.

use std::net::{Ipv4Addr, Ipv6Addr};

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};

use crate::batch::ELEMENT;
use crate::element::{Element, Encoding};
use crate::sink::Error;

/// Columns that have a value, a bit for each.
pub(super) type Present = u128;

const MAX_COLUMNS: usize = 128;
/// Seconds from 1900 to 1970.
const NTP_EPOCH: i64 = 2_208_988_800;

/// A schema's columns as information elements.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    elements: Vec<Element>,
}

impl Layout {
    pub(super) fn of(schema: &Schema) -> Result<Self, Error> {
        let element = |field: &arrow_schema::FieldRef| {
            let text = field.metadata().get(ELEMENT);
            let element = text.and_then(|text| text.parse().ok());
            element.ok_or_else(|| Error::NoElement(field.name().clone()))
        };
        let elements: Vec<_> = schema
            .fields()
            .iter()
            .map(element)
            .collect::<Result<_, _>>()?;
        if elements.len() > MAX_COLUMNS {
            return Err(Error::NoElement("the 129th".to_owned()));
        }
        Ok(Self { elements })
    }

    /// A template record: its id and the elements of these columns.
    pub(super) fn template(&self, id: u16, present: Present, out: &mut Vec<u8>) {
        out.extend(id.to_be_bytes());
        let count = u16::try_from(present.count_ones()).unwrap_or(0);
        out.extend(count.to_be_bytes());
        for element in self.present(present) {
            let own = element.enterprise != 0;
            let id = element.id | u16::from(own) << 15;
            out.extend(id.to_be_bytes());
            out.extend(element.length.to_be_bytes());
            if own {
                out.extend(element.enterprise.to_be_bytes());
            }
        }
    }

    fn present(&self, present: Present) -> impl Iterator<Item = &Element> {
        let elements = self.elements.iter().enumerate();
        elements.filter_map(move |(at, element)| (present >> at & 1 == 1).then_some(element))
    }

    /// The columns of a batch, to be read row by row.
    pub(super) fn cells<'a>(&'a self, batch: &'a RecordBatch) -> Cells<'a> {
        Cells {
            columns: self.elements.iter().zip(batch.columns()).collect(),
        }
    }
}

pub(super) struct Cells<'a> {
    columns: Vec<(&'a Element, &'a ArrayRef)>,
}

impl Cells<'_> {
    /// Appends a row's data record; says which columns are in it.
    pub(super) fn record(&self, row: usize, out: &mut Vec<u8>) -> Present {
        let mut present = 0;
        for (at, (element, column)) in self.columns.iter().enumerate() {
            if column.is_valid(row) && write(element, column, row, out).is_some() {
                present |= 1 << at;
            }
        }
        present
    }
}

/// Appends a value; `None` where it cannot be one of its element.
fn write(element: &Element, column: &ArrayRef, row: usize, out: &mut Vec<u8>) -> Option<()> {
    match element.encoding {
        Encoding::Unsigned => {
            let length = usize::from(element.length);
            let bytes = unsigned(column, row)?.to_be_bytes();
            out.extend(bytes.get(bytes.len() - length..)?);
        }
        Encoding::Milliseconds => {
            let milliseconds = time(column, row)?.div_euclid(1_000_000);
            out.extend(milliseconds.to_be_bytes());
        }
        Encoding::Nanoseconds => out.extend(ntp(time(column, row)?).to_be_bytes()),
        Encoding::Ipv4 => out.extend(text(column, row)?.parse::<Ipv4Addr>().ok()?.octets()),
        Encoding::Ipv6 => out.extend(text(column, row)?.parse::<Ipv6Addr>().ok()?.octets()),
        Encoding::Mac => out.extend(mac(text(column, row)?)?),
    }
    Some(())
}

fn unsigned(column: &ArrayRef, row: usize) -> Option<u64> {
    Some(match column.data_type() {
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row),
        _ => return None,
    })
}

fn time(column: &ArrayRef, row: usize) -> Option<i64> {
    let times = column.as_primitive_opt::<TimestampNanosecondType>()?;
    Some(times.value(row))
}

fn text(column: &ArrayRef, row: usize) -> Option<&str> {
    Some(column.as_string_opt::<i32>()?.value(row))
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        *octet = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    Some(octets)
}

/// As dateTimeNanoseconds: RFC 7011, section 6.1.10. The fraction is rounded up, so that a collector
/// that rounds down gets the same nanoseconds.
fn ntp(time_ns: i64) -> u64 {
    let seconds = time_ns.div_euclid(1_000_000_000) + NTP_EPOCH;
    let nanoseconds = time_ns.rem_euclid(1_000_000_000).unsigned_abs();
    let fraction = (nanoseconds << 32).div_ceil(1_000_000_000);
    // Beyond 2036 the seconds begin again, as those of NTP do.
    (seconds.unsigned_abs() & 0xffff_ffff) << 32 | fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_survive_the_binary_fraction() {
        for nanoseconds in [0, 1, 2, 499_999_999, 500_000_000, 999_999_999] {
            let written = ntp(1_600_000_000_000_000_000 + nanoseconds);
            assert_eq!(written >> 32, 1_600_000_000 + 2_208_988_800);
            let read = ((written & 0xffff_ffff) * 1_000_000_000) >> 32;
            assert_eq!(i64::try_from(read).unwrap(), nanoseconds);
        }
    }

    #[test]
    fn hardware_addresses_are_read_or_refused() {
        assert_eq!(mac("00:1b:ff:00:00:02"), Some([0, 0x1b, 0xff, 0, 0, 2]));
        assert_eq!(mac("00:1b"), None);
    }
}
