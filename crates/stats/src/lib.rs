//! Histograms, order-statistic intervals and verdicts. Nothing here knows what a packet is, reads a
//! clock or draws a random number.

mod comparison;
mod flags;
mod histogram;
mod order;
mod wilcoxon;

pub use comparison::{Better, Block, Comparison, Effect, Estimate, Verdict, holm};
pub use flags::{FLAG_GAP_POINTS, Flags};
pub use histogram::{BUCKETS, Histogram, InvalidBucket, bucket, lower_bound};
pub use order::{Interval, Quartiles, Ranks, median, median_interval, median_ranks, quantile};
pub use wilcoxon::signed_rank_p;
