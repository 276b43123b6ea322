//! ClientHello messages in a TCP stream whose segments come in any order.
#![no_main]

use features::payload::tls::{Accumulator, State};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut accumulator = Accumulator::new(0);
    let mut rest = input;
    // Each segment has a sequence number and a length before its bytes.
    while let Some((&[high, low, length], after)) = rest.split_first_chunk() {
        let (segment, later) = after.split_at(usize::from(length).min(after.len()));
        let sequence = u32::from(u16::from_be_bytes([high, low]));
        if let State::Found(hello) = accumulator.feed(sequence, segment) {
            assert_eq!(hello.ja4.len(), 36);
        }
        rest = later;
    }
});
