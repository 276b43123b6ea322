//! Histograms, order-statistic intervals and verdicts.

mod histogram;

pub use histogram::{BUCKETS, Histogram, bucket, lower_bound};
