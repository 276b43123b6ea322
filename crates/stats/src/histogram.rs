//! A log-linear histogram: exact below 64, then 32 buckets an octave (3 % wide); twin of
//! lowroad/histogram.h.

use serde::{Deserialize, Serialize};

/// Buckets that cover every u64.
pub const BUCKETS: usize = 1920;

/// Counts by bucket; merging adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// (bucket, count) of the buckets that are not empty, ascending.
    #[serde(rename = "buckets")]
    counts: Vec<(u16, u64)>,
}

/// The bucket a value belongs to.
pub fn bucket(value: u64) -> usize {
    if value < 64 {
        return usize::try_from(value).unwrap_or(0);
    }
    let octave = value.ilog2() as usize;
    (octave - 5) * 32 + usize::try_from(value >> (octave - 5)).unwrap_or(0)
}

/// The smallest value of a bucket.
pub fn lower_bound(bucket: usize) -> u64 {
    if bucket < 64 {
        return bucket as u64;
    }
    let octave = bucket / 32 + 4;
    ((bucket - (octave - 5) * 32) as u64) << (octave - 5)
}
