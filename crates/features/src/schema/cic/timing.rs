//! How packets follow each other.

use super::{max, mean, min, std, total};
use crate::column::Column;
use crate::flow::Flow;
use crate::schema::columns::{columns, cross};

/// The statistics of the gaps between packets.
macro_rules! gaps {
    ($prefix:literal, $packets:literal, |$flow:ident| $gaps:expr) => {
        cross!(|$flow| [($prefix, $packets, $gaps)], |gaps| [
            ("IAT Mean", Microseconds, "Mean time between successive packets " _ ", 0 where the clock went back; null below two packets.", F64(mean(gaps))),
            ("IAT Std", Microseconds, "Sample standard deviation of the times between successive packets " _ ", 0 where the clock went back; null below three packets.", F64(std(gaps))),
            ("IAT Max", Microseconds, "Longest time between successive packets " _ ", 0 where the clock went back; null below two packets.", F64(max(gaps))),
            ("IAT Min", Microseconds, "Shortest time between successive packets " _ ", 0 where the clock went back; null below two packets.", F64(min(gaps))),
        ])
    };
}

/// Their sum.
macro_rules! total {
    ($prefix:literal, $packets:literal, |$flow:ident| $gaps:expr) => {
        cross!(|$flow| [($prefix, $packets, $gaps)], |gaps| [
            ("IAT Total", Microseconds, "Sum of the times between successive packets " _ ", 0 where the clock went back; null below two packets.", F64(total(gaps))),
        ])
    };
}

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    gaps!("Flow ", "of either direction", |flow| flow.gaps),
    total!("Fwd ", "sent forward", |flow| flow.forward.gaps),
    gaps!("Fwd ", "sent forward", |flow| flow.forward.gaps),
    total!("Bwd ", "sent backward", |flow| flow.backward.gaps),
    gaps!("Bwd ", "sent backward", |flow| flow.backward.gaps),
];
