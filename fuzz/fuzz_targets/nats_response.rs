//! Answers of a JetStream server.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = nats::parse_response(body);
});
