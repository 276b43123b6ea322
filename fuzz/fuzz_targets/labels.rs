//! Files of labels, in all their forms.
#![no_main]

use std::cell::RefCell;

use features::labels::Labels;
use libfuzzer_sys::fuzz_target;
use lowroad_fuzz::InputFile;

thread_local!(static FILE: RefCell<InputFile> = RefCell::new(InputFile::new()));

fuzz_target!(|input: &[u8]| {
    FILE.with_borrow_mut(|file| drop(Labels::read(file.write(input))));
});
