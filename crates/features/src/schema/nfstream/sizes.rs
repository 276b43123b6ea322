//! How long packets are.

use super::{dst2src, or_zero, src2dst};
use crate::column::Column;
use crate::flow::Flow;
use crate::schema::columns::{columns, cross};

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    cross!(|flow| [("bidirectional_", "of either direction", flow.wire())], |lengths| [
        ("min_ps", Bytes, "Least length of the frames on the wire, of packets " _ ".", U64(or_zero(lengths.min()))),
        ("mean_ps", Bytes, "Mean length of the frames on the wire, of packets " _ ".", F64(or_zero(lengths.mean()))),
        ("stddev_ps", Bytes, "Sample standard deviation of the lengths of the frames on the wire, of packets " _ "; 0 below two packets.", F64(or_zero(lengths.std()))),
        ("max_ps", Bytes, "Greatest length of the frames on the wire, of packets " _ ".", U64(or_zero(lengths.max()))),
    ]),
    cross!(
        |flow| [
            ("src2dst_", "from src to dst", src2dst(flow).wire),
            ("dst2src_", "from dst to src", dst2src(flow).wire),
        ],
        |lengths| [
            ("min_ps", Bytes, "Least length of the frames on the wire, of packets " _ "; 0 without packets.", U64(or_zero(lengths.min()))),
            ("mean_ps", Bytes, "Mean length of the frames on the wire, of packets " _ "; 0 without packets.", F64(or_zero(lengths.mean()))),
            ("stddev_ps", Bytes, "Sample standard deviation of the lengths of the frames on the wire, of packets " _ "; 0 below two packets.", F64(or_zero(lengths.std()))),
            ("max_ps", Bytes, "Greatest length of the frames on the wire, of packets " _ "; 0 without packets.", U64(or_zero(lengths.max()))),
        ]
    ),
];
