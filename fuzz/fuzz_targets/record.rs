//! Records of experiments, and the analysis of what they hold.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use report::{Analysis, Record, Summary};

fuzz_target!(|text: &str| {
    if let Ok(record) = Record::parse(text, Path::new("record.jsonl")) {
        let _ = Summary::of(&Analysis::new(&record));
    }
});
