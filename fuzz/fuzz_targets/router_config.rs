//! The configuration file of the router: read, or refused in one line.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use lowroad_fuzz::InputFile;

thread_local!(static FILE: RefCell<InputFile> = RefCell::new(InputFile::new()));

fuzz_target!(|input: &[u8]| {
    FILE.with_borrow_mut(|file| {
        if let Err(error) = router::config::load(file.write(input)) {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    });
});
