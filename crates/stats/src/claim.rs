//! When an interval is far enough from equality to be claimed: which order statistics bound it, and by how much of its
//! own width it has to miss equality.
//!
//! Order statistics alone cannot keep a whole report to 1 % false claims: with ten blocks, the interval from the second
//! to the ninth value misses the median of one row in 2.1 % of reports. So the interval also has to stay away from
//! equality by a share of its own width, the margin, which is the larger the more rows a report has. The margins come from
//! simulation: `cargo run -p stats --example margins` prints them.

use crate::order::{Ranks, ranks_covering};

/// The numbers of rows for which margins are tabulated; a report with more rows than the last uses the last.
pub const MARGIN_ROWS: [usize; 5] = [1, 6, 12, 50, 200];

/// Margins by number of blocks, from 6 to 20, and by number of rows as in [`MARGIN_ROWS`].
const MARGINS: [[f64; 5]; 15] = [
    [0.26, 0.81, 1.09, 1.75, 2.66],
    [0.08, 0.45, 0.63, 1.06, 1.63],
    [0.0, 0.25, 0.38, 0.72, 1.05],
    [0.0, 0.11, 0.22, 0.46, 0.73],
    [0.13, 0.48, 0.64, 1.03, 1.55],
    [0.03, 0.30, 0.42, 0.71, 1.09],
    [0.0, 0.18, 0.28, 0.51, 0.77],
    [0.0, 0.09, 0.16, 0.36, 0.59],
    [0.0, 0.01, 0.09, 0.24, 0.41],
    [0.0, 0.18, 0.28, 0.49, 0.72],
    [0.0, 0.10, 0.18, 0.35, 0.53],
    [0.0, 0.04, 0.11, 0.26, 0.45],
    [0.0, 0.18, 0.27, 0.47, 0.68],
    [0.0, 0.10, 0.18, 0.35, 0.53],
    [0.0, 0.05, 0.12, 0.28, 0.43],
];
/// The fewest blocks that have an interval.
const MIN_BLOCKS: usize = 6;
/// Margins of more than 20 blocks: the largest of 21 to 60.
const MARGINS_ABOVE_20: [f64; 5] = [0.0, 0.13, 0.19, 0.33, 0.49];

/// The least coverage of an interval. Below `COVERAGE_CHANGE_BLOCKS`, so few order statistics are left that the margin has to
/// do more, and `COVERAGE_BELOW` is the least.
const COVERAGE: f64 = 0.99;
const COVERAGE_BELOW: f64 = 0.965;
const COVERAGE_CHANGE_BLOCKS: usize = 12;
/// Coverage of the A/A band. The band asks whether an effect is larger than what the baseline does to itself; it is no
/// interval that has to hold alone.
const BAND_COVERAGE: f64 = 0.89;

/// The conditions of a claim, for a number of blocks and a number of rows in the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClaimRule {
    /// Order statistics that bound the interval.
    pub interval: Ranks,
    /// Order statistics that bound the A/A band.
    pub band: Ranks,
    /// How far the interval has to stay from equality, as a share of its own width.
    pub margin: f64,
}

impl ClaimRule {
    /// None for fewer than six blocks, whose extremes cover the median less often than 95 %.
    #[must_use]
    pub fn new(blocks: usize, rows: usize) -> Option<Self> {
        Some(Self {
            interval: interval_ranks(blocks)?,
            band: band_ranks(blocks)?,
            margin: margin(blocks, rows),
        })
    }
}

/// Ranks of the interval of an effect over `blocks` blocks.
pub(crate) fn interval_ranks(blocks: usize) -> Option<Ranks> {
    let coverage = match blocks {
        COVERAGE_CHANGE_BLOCKS.. => COVERAGE,
        _ => COVERAGE_BELOW,
    };
    ranks_covering(blocks, coverage)
}

/// Ranks of the A/A band of `pairs` pairs.
pub(crate) fn band_ranks(pairs: usize) -> Option<Ranks> {
    ranks_covering(pairs, BAND_COVERAGE).filter(|_| pairs >= MIN_BLOCKS)
}

fn margin(blocks: usize, rows: usize) -> f64 {
    let column = MARGIN_ROWS.iter().position(|tabulated| rows <= *tabulated);
    let column = column.unwrap_or(MARGIN_ROWS.len() - 1);
    let of_blocks = blocks
        .checked_sub(MIN_BLOCKS)
        .and_then(|row| MARGINS.get(row));
    of_blocks.unwrap_or(&MARGINS_ABOVE_20)[column]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_and_twenty_blocks() {
        let rule = ClaimRule::new(10, 6).unwrap();
        assert_eq!((rule.interval.lower, rule.interval.upper), (2, 9));
        assert_eq!((rule.band.lower, rule.band.upper), (3, 8));
        let rule = ClaimRule::new(20, 12).unwrap();
        assert_eq!((rule.interval.lower, rule.interval.upper), (4, 17));
        assert_eq!((rule.band.lower, rule.band.upper), (6, 15));
        assert_eq!(ClaimRule::new(5, 1), None);
    }

    #[test]
    fn margins_grow_with_rows() {
        for blocks in 6..100 {
            for rows in MARGIN_ROWS.windows(2) {
                assert!(margin(blocks, rows[0]) <= margin(blocks, rows[1]));
            }
            assert_eq!(margin(blocks, 201), margin(blocks, 200));
        }
    }
}
