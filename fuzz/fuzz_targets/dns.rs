//! DNS over UDP and TCP: names are printable.
#![no_main]

use features::payload::dns;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let names = [
        dns::over_udp([53, 40_000], payload),
        dns::over_tcp([40_000, 53], payload),
    ];
    for name in names.into_iter().flatten() {
        assert!(
            name.bytes().all(|byte| (b'!'..=b'~').contains(&byte)),
            "{name:?}"
        );
    }
});
