//! Parquet and Arrow files of rows to score.
#![no_main]

use std::cell::RefCell;

use features::row_file::SavedRows;
use libfuzzer_sys::fuzz_target;
use lowroad_fuzz::InputFile;

thread_local!(static FILE: RefCell<InputFile> = RefCell::new(InputFile::new()));

fuzz_target!(|input: &[u8]| {
    FILE.with_borrow_mut(|file| drop(SavedRows::open(file.write(input))));
});
