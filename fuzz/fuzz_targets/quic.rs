//! QUIC's first datagrams in both directions: the ClientHello is found, or the work ends.
#![no_main]

use features::payload::quic::Connection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(mut connection) = Connection::new(input) else {
        return;
    };
    let mut rest = input;
    // Each datagram has its direction and its length before its bytes; the first one is the client's.
    connection.feed(0, input);
    while let Some((&[direction, high, low], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (datagram, later) = after.split_at(length.min(after.len()));
        connection.feed(usize::from(direction & 1), datagram);
        rest = later;
    }
    if let Some(hello) = connection.hello() {
        assert_eq!(hello.ja4.len(), 36);
    }
});
