//! Captures to flows: every packet is in a flow or in one counter.
#![no_main]

use features::{Extractor, Options};
use libfuzzer_sys::fuzz_target;
use packet::pcap::Reader;

/// A small input may unpack to a large capture.
const MAX_FRAMES: usize = 10_000;

fuzz_target!(|capture: &[u8]| {
    let Ok(mut reader) = Reader::new(capture) else {
        return;
    };
    let mut packets = 0;
    let mut extractor = Extractor::new(&Options::default(), |flow| packets += flow.packets());
    for _ in 0..MAX_FRAMES {
        let Ok(Some(frame)) = reader.read() else {
            break;
        };
        extractor.frame(&frame);
    }
    let counters = extractor.finish();
    assert_eq!(packets, counters.exported.packets);
    assert!(counters.check().is_ok(), "{counters:?}");
});
