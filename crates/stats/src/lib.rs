//! Histograms, order-statistic intervals and verdicts. Nothing here knows what a packet is or reads a clock, and the
//! same values always have the same result.

mod claim;
mod comparison;
mod drift;
mod estimate;
mod flags;
mod histogram;
mod order;

pub use claim::{ClaimRule, MARGIN_ROWS};
pub use comparison::{Better, Block, Comparison, Criteria, Verdict};
pub use drift::{DRIFT_DEVIATIONS, is_drifting};
pub use estimate::{Direction, Effect, Estimate};
pub use flags::{FLAG_GAP_POINTS, Flags};
pub use histogram::{BUCKETS, Histogram, InvalidBucket, RESOLUTION, bucket, lower_bound};
pub use order::{Interval, Quartiles, Ranks, median, median_interval, median_ranks, quantile};
