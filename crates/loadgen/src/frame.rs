//! UDP frames ready to be sent: per flow the headers and what their checksum starts from, per packet
//! only the payload header.

use std::net::SocketAddr;

use packet::payload::{self, Header};
use packet::{build, checksum};

use crate::Load;

/// The longest frame that every back end sends.
pub(crate) const MAX: usize = 2048;

/// The headers of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Ethernet, IP and UDP, with a zero UDP checksum.
    pub(crate) headers: Vec<u8>,
    /// Sum of all that the UDP checksum covers except the payload header.
    pub(crate) sum: u16,
    pub(crate) payload_len: usize,
}

/// The bytes after the payload header: each byte is its index.
pub(crate) fn filler(len: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(len).collect()
}

impl Template {
    pub(crate) fn new(load: &Load, to: SocketAddr) -> Self {
        let mut payload = filler(load.payload_len);
        payload[..payload::LEN].fill(0);
        let mut headers = build::udp(load.source, to)
            .macs(load.source_mac, load.destination_mac)
            .dont_fragment(true)
            .payload(payload)
            .frame();
        headers.truncate(headers.len() - load.payload_len);
        let check = headers.split_off(headers.len() - 2);
        headers.extend([0, 0]);
        Self {
            headers,
            sum: !u16::from_be_bytes([check[0], check[1]]),
            payload_len: load.payload_len,
        }
    }

    pub(crate) fn frame_len(&self) -> usize {
        self.headers.len() + self.payload_len
    }

    /// Writes headers and payload header into a frame whose payload is the filler already.
    pub(crate) fn write(&self, header: &Header, frame: &mut [u8]) {
        let (headers, payload) = frame.split_at_mut(self.headers.len());
        headers.copy_from_slice(&self.headers);
        header.write(payload);
        let sum = checksum::sum(&payload[..payload::LEN]) + u32::from(self.sum);
        let check = match !checksum::fold(sum) {
            // Zero would say that there is none (RFC 768).
            0 => u16::MAX,
            check => check,
        };
        let at = headers.len() - 2;
        headers[at..].copy_from_slice(&check.to_be_bytes());
    }
}
