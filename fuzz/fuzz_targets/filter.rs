//! Filter expressions: compiled, or refused at a column.
#![no_main]

use features::filter::{Rules, Selection};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|filter: &str| {
    let rules = Rules {
        filter: Some(filter.to_owned()),
        ..Rules::default()
    };
    let _ = Selection::new(rules);
});
