//! From frames to flows, and to the values of their rows.

use features::column::Value;
use features::flow::Flow;
use features::schema::find;
use features::{Extractor, Options};
use packet::pcap::{ETHERNET, Frame};

use super::frames::{SECOND, TimedFrame};

/// The first day of 2026: a time of zero could pass for one that was never set.
const START: i64 = 1_767_225_600 * SECOND;

/// A value of a row as a test compares it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Number(f64),
    Text(String),
}

/// The flows of these frames in the order of their ends.
pub(super) fn flows(frames: &[TimedFrame]) -> Vec<Flow> {
    let mut flows = Vec::new();
    let mut extractor = Extractor::new(&Options::default(), |flow| flows.push(*flow));
    for (time, bytes) in frames {
        let frame = Frame {
            timestamp_ns: START + time,
            original_length: u32::try_from(bytes.len()).expect("a short frame"),
            link_type: ETHERNET,
            bytes,
        };
        extractor.frame(&frame);
    }
    assert_eq!(extractor.finish().unaccounted(), 0);
    flows
}

/// The only flow of these frames.
pub(super) fn flow(frames: &[TimedFrame]) -> Flow {
    let mut flows = flows(frames);
    assert_eq!(flows.len(), 1, "{flows:#?}");
    flows.remove(0)
}

pub(super) fn row(flow: &Flow) -> Vec<(&'static str, Cell)> {
    let schema = find("cic.v1").expect("the schema");
    let groups = schema.flow_columns().expect("rows about flows");
    let columns = groups.iter().copied().flatten();
    columns
        .map(|column| (column.name, cell(&column.value, flow)))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn cell(value: &Value<Flow>, flow: &Flow) -> Cell {
    let number = match value {
        Value::U8(of) => of(flow).map(f64::from),
        Value::U16(of) => of(flow).map(f64::from),
        Value::U32(of) => of(flow).map(f64::from),
        Value::U64(of) => of(flow).map(|number| number as f64),
        Value::F64(of) => of(flow),
        Value::Time(of) => of(flow).map(|time| (time - START) as f64),
        Value::Text(write) => {
            let mut text = String::new();
            let known = write(flow, &mut text);
            return if known { Cell::Text(text) } else { Cell::Null };
        }
        other => panic!("CICFlowMeter has no {}", other.kind()),
    };
    number.map_or(Cell::Null, Cell::Number)
}

pub(super) fn get(flow: &Flow, name: &str) -> Cell {
    let row = row(flow);
    let found = row.into_iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no column {name}")).1
}

pub(super) fn numbers(flow: &Flow, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        let got = get(flow, name);
        let same = matches!(got, Cell::Number(got) if (got - value).abs() <= value.abs() * 1e-12);
        assert!(same, "{name}: {got:?} instead of {value}");
    }
}

pub(super) fn nulls(flow: &Flow, names: &[&str]) {
    for name in names {
        assert_eq!(get(flow, name), Cell::Null, "{name}");
    }
}
