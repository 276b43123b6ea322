//! UDP frames ready to be sent: per flow the headers and what their checksum starts from, per packet
//! only the payload header.

use std::net::{IpAddr, SocketAddr};

use packet::payload::{self, Header};

use crate::Load;

/// The longest frame that every back end sends.
pub(crate) const MAX: usize = 2048;
const V4: usize = 14 + 20 + 8;
const V6: usize = 14 + 40 + 8;
const UDP: u8 = 17;
const TTL: u8 = 64;

/// The headers of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) headers: Vec<u8>,
    /// Of pseudo-header, UDP header without checksum, and the payload after its header: added as
    /// the words lie in memory.
    pub(crate) sum: u32,
    pub(crate) payload_len: usize,
}

/// What follows the payload header: each byte is its index.
pub(crate) fn filler(len: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(len).collect()
}

impl Template {
    pub(crate) fn new(load: &Load, to: SocketAddr) -> Self {
        let udp_len = be16(8 + load.payload_len);
        let mut headers = [load.destination_mac, load.source_mac].concat();
        let mut sum = match (load.source.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                headers.extend([0x08, 0x00]);
                headers.extend(ipv4(from.octets(), to.octets(), load.payload_len));
                add(&from.octets(), add(&to.octets(), 0))
            }
            (from, to) => {
                let (from, to) = (octets(from), octets(to));
                headers.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                headers.extend(udp_len);
                headers.extend([UDP, TTL]);
                headers.extend([from, to].concat());
                add(&from, add(&to, 0))
            }
        };
        let udp = headers.len();
        headers.extend(load.source.port().to_be_bytes());
        headers.extend(to.port().to_be_bytes());
        headers.extend(udp_len);
        headers.extend([0, 0]);
        sum = add(&headers[udp..], add(&udp_len, add(&[0, UDP], sum)));
        sum = add(&filler(load.payload_len)[payload::LEN..], sum);
        Self {
            headers,
            sum,
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
        let check = !fold(add(&payload[..payload::LEN], self.sum));
        // Zero would say that there is no checksum (RFC 768).
        let check = if check == 0 { u16::MAX } else { check };
        let at = headers.len() - 2;
        headers[at..].copy_from_slice(&check.to_ne_bytes());
    }
}

fn ipv4(from: [u8; 4], to: [u8; 4], payload_len: usize) -> [u8; 20] {
    let mut ip = [0; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&be16(28 + payload_len));
    // Do not fragment; the identification may then be zero (RFC 6864).
    ip[6] = 0x40;
    ip[8] = TTL;
    ip[9] = UDP;
    ip[12..16].copy_from_slice(&from);
    ip[16..20].copy_from_slice(&to);
    let check = !fold(add(&ip, 0));
    ip[10..12].copy_from_slice(&check.to_ne_bytes());
    ip
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Lengths are checked to fit before a template is made.
fn be16(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

/// Adds 16-bit words as they lie in memory (RFC 1071); at most 2048 bytes, so it cannot overflow.
fn add(bytes: &[u8], sum: u32) -> u32 {
    let words = bytes.chunks(2).map(|word| {
        let second = word.get(1).copied().unwrap_or(0);
        u32::from(u16::from_ne_bytes([word[0], second]))
    });
    words.sum::<u32>() + sum
}

#[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

const _: () = assert!(
    V4 == 42 && V6 == 62,
    "HEADERS_V4 and HEADERS_V6 of live.bpf.c"
);
