//! The header parser that userspace shares with the BPF programs: offsets lie within the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::parse::{Verdict, parse};

fuzz_target!(|frame: &[u8]| {
    let Ok(parsed) = parse(frame) else { return };
    assert!(parsed.l3 <= frame.len());
    if parsed.family.is_some() {
        let end = parsed.l3 + parsed.ip_length;
        assert!(end <= frame.len());
        assert!(parsed.l3 < parsed.l4 && parsed.l4 <= end);
        assert!(parsed.payload <= end);
    }
    if parsed.verdict == Verdict::Complete {
        assert!(parsed.payload > parsed.l4);
    }
});
