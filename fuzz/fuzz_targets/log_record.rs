//! Records of a replication log: what is read is written as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use replicate::codec::{decode, encode};

fuzz_target!(|input: &[u8]| {
    let Ok(record) = decode(input) else { return };
    let mut bytes = Vec::new();
    encode(&record, &mut bytes);
    assert_eq!(decode(&bytes).as_ref(), Ok(&record));
});
