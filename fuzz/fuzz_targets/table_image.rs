//! Table images of the router.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use lowroad_fuzz::InputFile;
use router::image::Image;

thread_local!(static FILE: RefCell<InputFile> = RefCell::new(InputFile::new()));

fuzz_target!(|input: &[u8]| {
    FILE.with_borrow_mut(|file| drop(Image::open(file.write(input))));
});
