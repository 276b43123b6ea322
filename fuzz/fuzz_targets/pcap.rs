//! Captures: pcap, pcapng and their compressed forms.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::pcap::Reader;

/// A small input may unpack to a large capture.
const MAX_FRAMES: usize = 10_000;

fuzz_target!(|capture: &[u8]| {
    let Ok(mut reader) = Reader::new(capture) else {
        return;
    };
    for _ in 0..MAX_FRAMES {
        let Ok(Some(frame)) = reader.read() else {
            return;
        };
        assert!(frame.wire_length() >= frame.bytes.len() as u64);
    }
});
