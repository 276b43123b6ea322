//! Cross products of columns: the same columns of several directions, the same statistics of several quantities.

use crate::column::Column;
use crate::flow::Flow;

/// Joins groups of columns to one slice.
macro_rules! columns {
    ($($group:expr),+ $(,)?) => {{
        use $crate::{column::Column, flow::Flow, schema::columns::{count, join}};
        const GROUPS: &[&[Column<Flow>]] = &[$($group),+];
        const COLUMNS: [Column<Flow>; count(GROUPS)] = join(GROUPS);
        &COLUMNS
    }};
}

/// Every column of a list for every subject: all of the first subject, then all of the next one.
///
/// A subject is a prefix for names, a word for definitions, and its value of a flow. A column is a name, a unit, a
/// definition with `_` in place of the subject's word, and how the subject's value gives the column's.
macro_rules! cross {
    (|$flow:ident| [$($subject:tt),+ $(,)?], |$of:ident| $columns:tt) => {
        $crate::schema::columns::columns![
            $($crate::schema::columns::cross!(@subject $flow $subject $of $columns)),+
        ]
    };
    (@subject
        $flow:ident ($prefix:literal, $word:literal, $value:expr)
        $of:ident [$((
            $name:literal, $unit:ident, $before:literal _ $after:literal, $kind:ident($column:expr)
        )),+ $(,)?]
    ) => {
        &[$($crate::column::Column::new(
            concat!($prefix, $name),
            $crate::column::Unit::$unit,
            concat!($before, $word, $after),
            $crate::column::Value::$kind(|$flow: &$crate::flow::Flow| {
                let $of = &$value;
                $column
            }),
        )),+]
    };
}

/// Every column of a list forward, then backward.
macro_rules! directions {
    (|$of:ident| $columns:tt) => {
        $crate::schema::columns::cross!(
            |flow| [
                ("fwd_", "forward", flow.forward),
                ("bwd_", "backward", flow.backward)
            ],
            |$of| $columns
        )
    };
}

pub(super) use {columns, cross, directions};

pub(super) const fn count(groups: &[&[Column<Flow>]]) -> usize {
    let (mut count, mut group) = (0, 0);
    while group < groups.len() {
        count += groups[group].len();
        group += 1;
    }
    count
}

pub(super) const fn join<const N: usize>(groups: &[&[Column<Flow>]]) -> [Column<Flow>; N] {
    let mut columns = [groups[0][0]; N];
    let (mut count, mut group) = (0, 0);
    while group < groups.len() {
        let mut column = 0;
        while column < groups[group].len() {
            columns[count] = groups[group][column];
            count += 1;
            column += 1;
        }
        group += 1;
    }
    columns
}
