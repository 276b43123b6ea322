//! Files of routes, by their content and as each format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router::routes::{Format, Options, read};

fuzz_target!(|input: &[u8]| {
    let formats = Format::ALL.iter().copied().map(Some);
    for format in formats.chain([None]) {
        let options = Options {
            format,
            ..Options::default()
        };
        let _ = read("fuzz", input, &options);
    }
});
