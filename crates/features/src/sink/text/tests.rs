//! The exact bytes of each type and of its special values.

use std::sync::Arc;

use arrow_array::types::{
    ArrowTimestampType, Int8Type, Int32Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, DictionaryArray,
    FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray,
    NullArray, PrimitiveArray, RecordBatch, StringArray, StringViewArray, StructArray, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{Field, Schema};

use super::{check_json, csv_header, csv_rows, json_lines};
use crate::batch::FIELDS;

/// Rows of one column, `c`.
fn batch(array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("c", Arc::new(array) as ArrayRef, true)]).unwrap()
}

/// The values of a column as CSV and as JSON.
fn lines(rows: &RecordBatch) -> (Vec<String>, Vec<String>) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let csv = text(csv_rows(rows).unwrap());
    let json = text(json_lines(rows).unwrap());
    let value = |line: &str| {
        let value = line.strip_prefix(r#"{"c":"#).unwrap_or(line);
        let value = value.strip_suffix('}').unwrap_or(value);
        value.to_owned()
    };
    (
        csv.lines().map(str::to_owned).collect(),
        json.lines().map(value).collect(),
    )
}

/// Checks a column's values, each as CSV and as JSON.
fn check(array: impl Array + 'static, expected: &[(&str, &str)]) {
    let (csv, json) = lines(&batch(array));
    let expected: (Vec<&str>, Vec<&str>) = expected.iter().copied().unzip();
    assert_eq!(csv, expected.0);
    assert_eq!(json, expected.1);
}

/// Checks a column whose values are the same in both formats.
fn check_same(array: impl Array + 'static, expected: &[&str]) {
    let expected: Vec<_> = expected.iter().map(|text| (*text, *text)).collect();
    check(array, &expected);
}

#[test]
fn integers_have_all_digits() {
    check_same(UInt8Array::from(vec![0, u8::MAX]), &["0", "255"]);
    check_same(UInt16Array::from(vec![u16::MAX]), &["65535"]);
    check_same(UInt32Array::from(vec![u32::MAX]), &["4294967295"]);
    check_same(UInt64Array::from(vec![u64::MAX]), &["18446744073709551615"]);
    check_same(Int8Array::from(vec![i8::MIN]), &["-128"]);
    check_same(Int16Array::from(vec![i16::MIN]), &["-32768"]);
    check_same(Int32Array::from(vec![i32::MIN]), &["-2147483648"]);
    check_same(
        Int64Array::from(vec![i64::MIN, -1, i64::MAX]),
        &["-9223372036854775808", "-1", "9223372036854775807"],
    );
}

#[test]
fn nulls_are_empty_or_absent() {
    check(
        UInt8Array::from(vec![Some(1), None]),
        &[("1", "1"), ("\"\"", "{")],
    );
    check(NullArray::new(1), &[("\"\"", "{")]);
    check(
        BooleanArray::from(vec![None, Some(true), Some(false)]),
        &[("\"\"", "{"), ("true", "true"), ("false", "false")],
    );
    let columns = [
        (
            "a",
            Arc::new(UInt8Array::from(vec![None, Some(1), None])) as ArrayRef,
        ),
        ("b", Arc::new(StringArray::from(vec![None, None, Some("")]))),
        (
            "c",
            Arc::new(UInt8Array::from(vec![None, Some(2), Some(3)])),
        ),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    assert_eq!(csv_rows(&rows).unwrap(), b",,\n1,,2\n,,3\n");
    let json = "{}\n{\"a\":1,\"c\":2}\n{\"b\":\"\",\"c\":3}\n";
    assert_eq!(json_lines(&rows).unwrap(), json.as_bytes());
}

#[test]
fn doubles_have_shortest_digits() {
    let expected = [
        (0.0, "0.0", "0.0"),
        (-0.0, "-0.0", "-0.0"),
        (1.0, "1.0", "1.0"),
        (-2.5, "-2.5", "-2.5"),
        (0.1 + 0.2, "0.30000000000000004", "0.30000000000000004"),
        (1e-5, "0.00001", "0.00001"),
        (9.999e-6, "9.999e-6", "9.999e-6"),
        (1e-7, "1e-7", "1.0e-7"),
        (-1.5e-7, "-1.5e-7", "-1.5e-7"),
        (9_999_999_999.5, "9999999999.5", "9999999999.5"),
        (1e10, "10000000000.0", "1.0e10"),
        (12_345_678_901.5, "12345678901.5", "1.23456789015e10"),
        (1_230_000_000_000_000.0, "1230000000000000.0", "1.23e15"),
        (
            9_007_199_254_740_993.0,
            "9007199254740992.0",
            "9.007199254740992e15",
        ),
        (1e16, "1e16", "1.0e16"),
        (-1.25e21, "-1.25e21", "-1.25e21"),
        (
            4_611_686_018_427_840_512.0,
            "4.61168601842784e18",
            "4.611686018427841e18",
        ),
        (f64::MAX, "1.7976931348623157e308", "1.7976931348623157e308"),
        (
            f64::MIN_POSITIVE,
            "2.2250738585072014e-308",
            "2.2250738585072014e-308",
        ),
        (5e-324, "5e-324", "5.0e-324"),
        (f64::NAN, "NaN", "null"),
        (f64::INFINITY, "inf", "null"),
        (f64::NEG_INFINITY, "-inf", "null"),
    ];
    let values: Vec<f64> = expected.iter().map(|(value, ..)| *value).collect();
    let texts: Vec<_> = expected
        .iter()
        .map(|(_, csv, json)| (*csv, *json))
        .collect();
    check(Float64Array::from(values), &texts);
}

#[test]
fn singles_have_shortest_digits() {
    let expected = [
        (-0.0, "-0.0", "-0.0"),
        (0.1, "0.1", "0.1"),
        (0.291_015_63, "0.29101562", "0.29101563"),
        (16_777_216.0, "16777216.0", "16777216.0"),
        (1e-5, "0.00001", "0.00001"),
        (1.5e-6, "0.0000015", "1.5e-6"),
        (9.5e-7, "9.5e-7", "9.5e-7"),
        (1e10, "10000000000.0", "1.0e10"),
        (1.5e12, "1500000000000.0", "1.5e12"),
        (1e13, "1e13", "1.0e13"),
        (f32::MAX, "3.4028235e38", "3.4028235e38"),
        (1e-45, "1e-45", "1.0e-45"),
        (f32::NAN, "NaN", "null"),
        (f32::NEG_INFINITY, "-inf", "null"),
    ];
    let values: Vec<f32> = expected.iter().map(|(value, ..)| *value).collect();
    let texts: Vec<_> = expected
        .iter()
        .map(|(_, csv, json)| (*csv, *json))
        .collect();
    check(Float32Array::from(values), &texts);
}

#[test]
fn text_is_quoted_and_escaped() {
    let expected = [
        ("plain text;'/", "plain text;'/", r#""plain text;'/""#),
        ("", "\"\"", r#""""#),
        ("a,b", "\"a,b\"", r#""a,b""#),
        ("say \"x\"", "\"say \"\"x\"\"\"", r#""say \"x\"""#),
        ("a\\b", "a\\b", r#""a\\b""#),
        ("\u{8}\t\u{c}", "\u{8}\t\u{c}", r#""\b\t\f""#),
        (
            "\0\u{1f}\u{7f}",
            "\0\u{1f}\u{7f}",
            "\"\\u0000\\u001f\u{7f}\"",
        ),
        ("é漢😀\u{2028}", "é漢😀\u{2028}", "\"é漢😀\u{2028}\""),
    ];
    let values: Vec<&str> = expected.iter().map(|(value, ..)| *value).collect();
    let texts: Vec<_> = expected
        .iter()
        .map(|(_, csv, json)| (*csv, *json))
        .collect();
    check(StringArray::from(values.clone()), &texts);
    check(LargeStringArray::from(values.clone()), &texts);
    check(StringViewArray::from(values.clone()), &texts);
    check(
        values.into_iter().collect::<DictionaryArray<Int8Type>>(),
        &texts,
    );
    let rows = batch(StringArray::from(vec!["a\nb", "a\rb"]));
    assert_eq!(csv_rows(&rows).unwrap(), b"\"a\nb\"\n\"a\rb\"\n");
    let json = b"{\"c\":\"a\\nb\"}\n{\"c\":\"a\\rb\"}\n";
    assert_eq!(json_lines(&rows).unwrap(), json);
}

#[test]
fn binary_data_is_hexadecimal() {
    let bytes: [&[u8]; 2] = [b"\x00\x9a\xff", b"abc"];
    let expected = [("009aff", "\"009aff\""), ("616263", "\"616263\"")];
    check(BinaryArray::from_iter_values(bytes), &expected);
    check(LargeBinaryArray::from_iter_values(bytes), &expected);
    check(BinaryViewArray::from_iter_values(bytes), &expected);
    let fixed = FixedSizeBinaryArray::try_from_iter(bytes.into_iter()).unwrap();
    check(fixed, &expected);
}

/// Checks timestamps with a zone, or without.
fn check_times<T: ArrowTimestampType>(zone: Option<&str>, expected: &[(i64, &str)]) {
    let values = expected.iter().map(|(value, _)| *value);
    let array = PrimitiveArray::<T>::from_iter_values(values).with_timezone_opt(zone);
    let (csv, json) = lines(&batch(array));
    let texts: Vec<&str> = expected.iter().map(|(_, text)| *text).collect();
    assert_eq!(csv, texts);
    let quoted: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
    assert_eq!(json, quoted);
}

#[test]
fn timestamps_follow_rfc_3339() {
    check_times::<TimestampNanosecondType>(
        Some("+00:00"),
        &[
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (1_709_210_096_000_000_000, "2024-02-29T12:34:56Z"),
            (1_709_210_096_120_000_000, "2024-02-29T12:34:56.120Z"),
            (1_709_210_096_000_120_000, "2024-02-29T12:34:56.000120Z"),
            (1_709_210_096_000_000_120, "2024-02-29T12:34:56.000000120Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        ],
    );
    check_times::<TimestampMicrosecondType>(
        Some("UTC"),
        &[
            (1_500_001, "1970-01-01T00:00:01.500001Z"),
            (1_500_000, "1970-01-01T00:00:01.500Z"),
        ],
    );
    check_times::<TimestampMillisecondType>(None, &[(-1, "1969-12-31T23:59:59.999")]);
    check_times::<TimestampSecondType>(
        None,
        &[
            (253_402_300_800, "+10000-01-01T00:00:00"),
            (-62_167_219_201, "-0001-12-31T23:59:59"),
        ],
    );
    check_times::<TimestampSecondType>(
        Some("+05:30"),
        &[
            (0, "1970-01-01T05:30:00+05:30"),
            (-20_000, "1969-12-31T23:56:40+05:30"),
        ],
    );
    check_times::<TimestampSecondType>(Some("-0830"), &[(0, "1969-12-31T15:30:00-08:30")]);
    check_times::<TimestampSecondType>(Some("+14"), &[(0, "1970-01-01T14:00:00+14:00")]);
}

/// Lists of two, the second of which is null as a whole.
fn pairs() -> FixedSizeListArray {
    let items = [
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(-3), Some(4)]),
    ];
    FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(items, 2)
}

#[test]
fn each_step_of_a_list_is_a_column() {
    let rows = batch(pairs());
    assert_eq!(csv_header(rows.schema_ref()).unwrap(), b"c_0,c_1\n");
    assert_eq!(csv_rows(&rows).unwrap(), b"1,\n,\n-3,4\n");
    assert_eq!(csv_rows(&rows.slice(2, 1)).unwrap(), b"-3,4\n");
    let bits = |fields: &str| {
        let metadata = [(FIELDS.to_owned(), fields.to_owned())];
        let field = Field::new("c", pairs().data_type().clone(), true);
        Schema::new(vec![field.with_metadata(metadata.into())])
    };
    assert_eq!(csv_header(&bits("a:1,b:1")).unwrap(), b"a_0,b_0\n");
    assert_eq!(csv_header(&bits("a:1,b:4")).unwrap(), b"c_0,c_1\n");
}

#[test]
fn lists_are_json_arrays() {
    let expected = "{\"c\":[1,null]}\n{}\n{\"c\":[-3,4]}\n";
    let rows = batch(pairs());
    assert_eq!(json_lines(&rows).unwrap(), expected.as_bytes());
    assert_eq!(json_lines(&rows.slice(2, 1)).unwrap(), b"{\"c\":[-3,4]}\n");
    let lists = || [Some(vec![]), None, Some(vec![Some(1), None, Some(2)])];
    let expected = b"{\"c\":[]}\n{}\n{\"c\":[1,null,2]}\n";
    let list = batch(ListArray::from_iter_primitive::<Int32Type, _, _>(lists()));
    assert_eq!(json_lines(&list).unwrap(), expected);
    let list = batch(LargeListArray::from_iter_primitive::<Int32Type, _, _>(
        lists(),
    ));
    assert_eq!(json_lines(&list).unwrap(), expected);
}

#[test]
fn names_are_quoted_and_escaped() {
    let values = || Arc::new(UInt8Array::from(vec![1])) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("a,\"b", values()), ("c\n", values())]).unwrap();
    let header = csv_header(rows.schema_ref()).unwrap();
    assert_eq!(header, b"\"a,\"\"b\",\"c\n\"\n");
    assert_eq!(json_lines(&rows).unwrap(), b"{\"a,\\\"b\":1,\"c\\n\":1}\n");
    assert_eq!(csv_header(&Schema::empty()).unwrap(), b"\"\"\n");
}

#[test]
fn other_types_are_refused_by_name() {
    let refused = |array: ArrayRef, json: &str, csv: &str| {
        let rows = RecordBatch::try_from_iter([("when", array)]).unwrap();
        let message = |kind: &str, format: &str| {
            format!(
                "column when has the type {kind}, which {format} output does not support; \
                 write Parquet or Arrow"
            )
        };
        if !json.is_empty() {
            let error = check_json(rows.schema_ref()).unwrap_err();
            assert_eq!(error.to_string(), message(json, "JSON"));
        }
        let error = csv_header(rows.schema_ref()).unwrap_err();
        assert_eq!(error.to_string(), message(csv, "CSV"));
    };
    refused(Arc::new(Date32Array::from(vec![1])), "Date32", "Date32");
    let zone = PrimitiveArray::<TimestampSecondType>::from_iter_values([0]);
    let zone = Arc::new(zone.with_timezone("Europe/Berlin"));
    let kind = "Timestamp(s, \"Europe/Berlin\")";
    refused(zone, kind, kind);
    let empty = Arc::new(StructArray::new_empty_fields(1, None));
    refused(empty, "Struct()", "Struct()");
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
    let list = Arc::new(list);
    let kind = list.data_type().to_string();
    refused(list, "", &kind);
}

#[test]
fn times_outside_the_calendar_are_refused() {
    let rows = batch(PrimitiveArray::<TimestampSecondType>::from_iter_values([
        0,
        i64::MAX,
    ]));
    let expected = "column c has a timestamp before year -262143 or after year 262142; \
                    write Parquet or Arrow";
    assert_eq!(json_lines(&rows).unwrap_err().to_string(), expected);
    assert_eq!(csv_rows(&rows).unwrap_err().to_string(), expected);
    assert!(csv_rows(&rows.slice(0, 1)).is_ok());
}
