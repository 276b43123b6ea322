//! How packets follow each other.

use super::{of, per_second};
use crate::column::{Column, Unit, Value};
use crate::flow::{Direction, Flow};
use crate::schema::columns::{columns, cross, directions};
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    &[shared::DURATION_NS],
    cross!(
        |flow| [
            ("", "of either direction", flow.gaps),
            ("fwd_", "sent forward", flow.forward.gaps),
            ("bwd_", "sent backward", flow.backward.gaps),
        ],
        |gaps| [
            ("iat_min_ns", Nanoseconds, "Shortest time between successive packets " _ ", 0 where the clock went back; null below two packets.", U64(gaps.min())),
            ("iat_max_ns", Nanoseconds, "Longest time between successive packets " _ ", 0 where the clock went back; null below two packets.", U64(gaps.max())),
            ("iat_mean_ns", Nanoseconds, "Mean time between successive packets " _ ", 0 where the clock went back; null below two packets.", F64(gaps.mean())),
            ("iat_std_ns", Nanoseconds, "Sample standard deviation of the times between successive packets " _ "; null below three packets.", F64(gaps.std())),
        ]
    ),
    directions!(|sent| [
        ("duration_ns", Nanoseconds, "From the first packet sent " _ " to the latest; null without packets.", U64(of(sent, Direction::duration_ns))),
    ]),
    &[
        Column::new(
            "bytes_per_s",
            Unit::BytesPerSecond,
            "Bytes of whole frames by duration; null when that is zero.",
            Value::F64(|f| per_second(f.wire().sum, f.duration_ns())),
        ),
        Column::new(
            "packets_per_s",
            Unit::PacketsPerSecond,
            "Packets by duration; null when that is zero.",
            Value::F64(|f| per_second(f.packets(), f.duration_ns())),
        ),
    ],
];
