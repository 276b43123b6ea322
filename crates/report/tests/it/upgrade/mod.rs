//! Records of all schemas that were ever written are still read.

use std::path::Path;

use report::{Record, Summary, journal};
use stats::Verdict;

const RECORDS: [&str; 2] = [
    include_str!("schema-1.jsonl"),
    include_str!("schema-2.jsonl"),
];

#[test]
fn every_schema_has_a_record_that_is_read() {
    for (text, schema) in RECORDS.into_iter().zip(1..) {
        let record = Record::parse(text, Path::new("record.jsonl")).unwrap();
        assert_eq!(record.header.schema, schema);
        assert!(record.notices.is_empty(), "{:?}", record.notices);
        let summary = Summary::from_record(&record);
        let mut rows = summary.results.iter();
        let row = rows.find(|row| row.metric == "delay_p50" && row.arm == "xdp");
        let row = row.unwrap();
        assert_eq!(row.verdict, Verdict::Better, "schema {schema}");
        assert_eq!((row.n, row.disturbed), (10, 1), "schema {schema}");
        let median = row.arm_median.unwrap();
        assert!((16.0..17.0).contains(&median), "schema {schema}: {median}");
    }
    assert_eq!(RECORDS.len(), journal::SCHEMA as usize);
}

#[test]
fn other_schemas_are_refused_with_remedy() {
    for schema in [0, journal::SCHEMA + 1] {
        let text = RECORDS[0].replacen("\"schema\": 1,", &format!("\"schema\": {schema},"), 1);
        let error = Record::parse(&text, Path::new("record.jsonl")).unwrap_err();
        let expected = format!(
            "record.jsonl: written as schema {schema}, this lowroad reads 1 to {}; read it with the lowroad that wrote it",
            journal::SCHEMA
        );
        assert_eq!(error.to_string(), expected);
    }
}
