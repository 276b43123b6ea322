//! Converts a column's values to integers in the same order.

use serde::{Deserialize, Serialize};

use super::integer::MISSING;

/// The conversion of a column's values to the integers that trees compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// The value itself, saturated at 63 bits.
    Integer,
    /// The rank of a double among all doubles, so that nothing is rounded.
    Double,
}

impl Quantity {
    /// The quantity for a column of this type, as named in schemas; `None` if the type is not numeric.
    pub fn of(kind: &str) -> Option<Self> {
        match kind {
            "u8" | "u16" | "u32" | "u64" | "i8" | "i16" | "i32" | "i64" | "bool" => {
                Some(Self::Integer)
            }
            "f64" => Some(Self::Double),
            _ => None,
        }
    }

    /// The integer of a double.
    pub(crate) fn double(value: f64) -> i64 {
        double(value)
    }

    /// The number for an integer, as passed to a floating-point model.
    #[expect(
        clippy::cast_precision_loss,
        reason = "models get integers in double precision"
    )]
    pub(super) fn number(self, value: i64) -> f64 {
        match self {
            Self::Integer => value as f64,
            Self::Double => f64::from_bits(flip(value).cast_unsigned()),
        }
    }

    /// The integer in the form of the column's values.
    pub fn format(self, value: i64) -> String {
        match self {
            Self::Integer => value.to_string(),
            Self::Double => self.number(value).to_string(),
        }
    }

    /// The minimum and maximum integer of a value.
    pub(super) fn range(self) -> (i64, i64) {
        match self {
            Self::Integer => (MISSING + 1, i64::MAX),
            Self::Double => (double(f64::NEG_INFINITY), double(f64::INFINITY)),
        }
    }
}

/// The rank of a double among all doubles.
pub(super) fn double(value: f64) -> i64 {
    if value.is_nan() {
        MISSING
    } else {
        flip(value.to_bits().cast_signed())
    }
}

/// The bits of negative doubles grow in the reverse order, so they are inverted.
fn flip(bits: i64) -> i64 {
    if bits < 0 { bits ^ i64::MAX } else { bits }
}
