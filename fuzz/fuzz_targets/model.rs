//! Models of trees and their manifests.
#![no_main]

use std::cell::RefCell;

use features::model::Model;
use libfuzzer_sys::fuzz_target;
use lowroad_fuzz::InputFile;

thread_local!(static FILE: RefCell<InputFile> = RefCell::new(InputFile::new()));

fuzz_target!(|input: &[u8]| {
    FILE.with_borrow_mut(|file| drop(Model::load(file.write(input))));
});
