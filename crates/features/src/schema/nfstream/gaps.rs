//! How packets follow each other.

use super::{dst2src, fraction, src2dst, whole};
use crate::column::Column;
use crate::flow::Flow;
use crate::schema::columns::cross;

pub(super) const COLUMNS: &[Column<Flow>] = cross!(
    |flow| [
        ("bidirectional_", "of either direction", flow.gaps),
        ("src2dst_", "from src to dst", src2dst(flow).gaps),
        ("dst2src_", "from dst to src", dst2src(flow).gaps),
    ],
    |gaps| [
        ("min_piat_ms", Milliseconds, "Shortest time between successive packets " _ ", 0 where the clock went back, rounded down; 0 below two packets.", U64(whole(gaps.min()))),
        ("mean_piat_ms", Milliseconds, "Mean time between successive packets " _ ", 0 where the clock went back; 0 below two packets.", F64(fraction(gaps.mean()))),
        ("stddev_piat_ms", Milliseconds, "Sample standard deviation of the times between successive packets " _ ", 0 where the clock went back; 0 below three packets.", F64(fraction(gaps.std()))),
        ("max_piat_ms", Milliseconds, "Longest time between successive packets " _ ", 0 where the clock went back, rounded down; 0 below two packets.", U64(whole(gaps.max()))),
    ]
);
