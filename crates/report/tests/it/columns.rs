//! The Parquet file read back: every trial, with what it holds and nothing that it does not.

use std::collections::BTreeMap;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use report::record::{Header, Trial};

use crate::common;

fn cells(row: &Row) -> BTreeMap<&str, &Field> {
    let cells = row.get_column_iter();
    cells.map(|(name, cell)| (name.as_str(), cell)).collect()
}

#[test]
fn every_trial_is_a_row_with_the_same_values() {
    let mut record = common::record(3, 2);
    record.trials[0].values.insert("rare".to_owned(), 0.5);
    record.trials[1].seed = u64::MAX;
    record.trials[1].flags = vec!["a".to_owned(), "b".to_owned()];
    record.trials[1].violations = vec!["c".to_owned(), "d".to_owned()];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.parquet");
    report::columns::write(&record, std::fs::File::create(&path).unwrap()).unwrap();

    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata();
    let pair = &metadata.key_value_metadata().unwrap()[0];
    let header: Header = serde_json::from_str(pair.value.as_ref().unwrap()).unwrap();
    assert_eq!(
        (pair.key.as_str(), header),
        ("lowroad.header", record.header)
    );

    let rows: Vec<Row> = reader.into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), record.trials.len());
    for (row, trial) in rows.iter().zip(&record.trials) {
        is_the_trial(&cells(row), trial);
    }
    assert_eq!(cells(&rows[1])["seed"], &Field::ULong(u64::MAX));
    assert_eq!(cells(&rows[1])["flags"], &Field::Str("a; b".to_owned()));
    assert_eq!(
        cells(&rows[1])["violations"],
        &Field::Str("c; d".to_owned())
    );
}

fn is_the_trial(cells: &BTreeMap<&str, &Field>, trial: &Trial) {
    assert_eq!(cells["arm"], &Field::Str(trial.arm.clone()));
    assert_eq!(cells["load"], &Field::Str(trial.load.clone()));
    assert_eq!(cells["block"], &Field::ULong(trial.block as u64));
    assert_eq!(cells["at_s"], &Field::Double(trial.at_s));
    for (prefix, map) in [
        ("values", &trial.values),
        ("cpu", &trial.cpu),
        ("noise", &trial.noise),
    ] {
        let own = cells
            .iter()
            .filter(|(name, _)| name.starts_with(&format!("{prefix}.")));
        for (name, cell) in own {
            let value = map.get(&name[prefix.len() + 1..]);
            assert_eq!(
                *cell,
                &value.map_or(Field::Null, |value| Field::Double(*value)),
                "{name}"
            );
        }
        assert!(
            map.keys()
                .all(|name| cells.contains_key(format!("{prefix}.{name}").as_str()))
        );
    }
    for (name, count) in &trial.counts {
        assert_eq!(
            cells[format!("counts.{name}").as_str()],
            &Field::ULong(*count)
        );
    }
    for (name, histogram) in &trial.histograms {
        let Field::Str(json) = cells[format!("histograms.{name}").as_str()] else {
            panic!("{name} is no text");
        };
        assert_eq!(
            &serde_json::from_str::<stats::Histogram>(json).expect("a histogram"),
            histogram
        );
    }
}
