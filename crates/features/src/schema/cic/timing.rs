//! How packets follow each other.

use super::{max, mean, min, std, total};
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "Flow IAT Mean",
        Unit::Microseconds,
        "Mean time between successive packets of either direction, 0 where the clock went back; null below two packets.",
        Value::F64(|f| mean(&f.gaps)),
    ),
    Column::new(
        "Flow IAT Std",
        Unit::Microseconds,
        "Sample standard deviation of the times between successive packets of either direction, 0 where the clock went back; null below three packets.",
        Value::F64(|f| std(&f.gaps)),
    ),
    Column::new(
        "Flow IAT Max",
        Unit::Microseconds,
        "Longest time between successive packets of either direction, 0 where the clock went back; null below two packets.",
        Value::F64(|f| max(&f.gaps)),
    ),
    Column::new(
        "Flow IAT Min",
        Unit::Microseconds,
        "Shortest time between successive packets of either direction, 0 where the clock went back; null below two packets.",
        Value::F64(|f| min(&f.gaps)),
    ),
    Column::new(
        "Fwd IAT Total",
        Unit::Microseconds,
        "Sum of the times between successive packets sent forward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| total(&f.forward.gaps)),
    ),
    Column::new(
        "Fwd IAT Mean",
        Unit::Microseconds,
        "Mean time between successive packets sent forward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| mean(&f.forward.gaps)),
    ),
    Column::new(
        "Fwd IAT Std",
        Unit::Microseconds,
        "Sample standard deviation of the times between successive packets sent forward, 0 where the clock went back; null below three packets.",
        Value::F64(|f| std(&f.forward.gaps)),
    ),
    Column::new(
        "Fwd IAT Max",
        Unit::Microseconds,
        "Longest time between successive packets sent forward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| max(&f.forward.gaps)),
    ),
    Column::new(
        "Fwd IAT Min",
        Unit::Microseconds,
        "Shortest time between successive packets sent forward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| min(&f.forward.gaps)),
    ),
    Column::new(
        "Bwd IAT Total",
        Unit::Microseconds,
        "Sum of the times between successive packets sent backward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| total(&f.backward.gaps)),
    ),
    Column::new(
        "Bwd IAT Mean",
        Unit::Microseconds,
        "Mean time between successive packets sent backward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| mean(&f.backward.gaps)),
    ),
    Column::new(
        "Bwd IAT Std",
        Unit::Microseconds,
        "Sample standard deviation of the times between successive packets sent backward, 0 where the clock went back; null below three packets.",
        Value::F64(|f| std(&f.backward.gaps)),
    ),
    Column::new(
        "Bwd IAT Max",
        Unit::Microseconds,
        "Longest time between successive packets sent backward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| max(&f.backward.gaps)),
    ),
    Column::new(
        "Bwd IAT Min",
        Unit::Microseconds,
        "Shortest time between successive packets sent backward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| min(&f.backward.gaps)),
    ),
];
