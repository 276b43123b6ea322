//! A column's values as integers in their own order.

use serde::{Deserialize, Serialize};

use super::integer::MISSING;

/// How a column's values become the integers that trees compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// The value itself; what is beyond 63 bits is the greatest there is.
    Integer,
    /// A double's place in the order of all doubles, so that nothing is rounded.
    Double,
}

impl Quantity {
    /// Of a column of this type, as schemas call types; none where it is no number.
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

    /// The number that an integer stands for, as a model in floating point gets it.
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

    /// The integer as people read the column.
    pub fn format(self, value: i64) -> String {
        match self {
            Self::Integer => value.to_string(),
            Self::Double => self.number(value).to_string(),
        }
    }

    /// The least and the greatest integer that a value can be.
    pub(super) fn range(self) -> (i64, i64) {
        match self {
            Self::Integer => (MISSING + 1, i64::MAX),
            Self::Double => (double(f64::NEG_INFINITY), double(f64::INFINITY)),
        }
    }
}

/// A double's place in the order of all doubles.
pub(super) fn double(value: f64) -> i64 {
    if value.is_nan() {
        MISSING
    } else {
        flip(value.to_bits().cast_signed())
    }
}

/// Negative doubles grow with their bits as unsigned numbers do: turned round, all are in order.
fn flip(bits: i64) -> i64 {
    if bits < 0 { bits ^ i64::MAX } else { bits }
}
