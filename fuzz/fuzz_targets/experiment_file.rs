//! Experiment files.
#![no_main]

use control::config::Document;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = experiment::catalog::parse(&Document::new("fuzz.toml", text));
});
