//! Socket addresses as the kernel lays them out, read and written as plain bytes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of the larger of the two: `sockaddr_in6`.
pub(crate) const LEN: usize = size_of::<libc::sockaddr_in6>();
const V4_LEN: usize = size_of::<libc::sockaddr_in>();

/// Room for one socket address, aligned as the C structs are.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Name(pub(crate) [u8; LEN]);

impl Name {
    pub(crate) const fn empty() -> Self {
        Self([0; LEN])
    }

    /// Writes `address` and returns how many bytes of the name are used.
    pub(crate) fn write(&mut self, address: SocketAddr) -> libc::socklen_t {
        let bytes = &mut self.0;
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                bytes[0..2].copy_from_slice(&family(libc::AF_INET));
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                bytes[8..V4_LEN].fill(0);
                len(V4_LEN)
            }
            SocketAddr::V6(v6) => {
                bytes[0..2].copy_from_slice(&family(libc::AF_INET6));
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                len(LEN)
            }
        }
    }

    /// The address in the first `len` bytes, or `None` when it is neither IPv4 nor IPv6.
    pub(crate) fn read(&self, len: libc::socklen_t) -> Option<SocketAddr> {
        let bytes = self.0.get(..len as usize)?;
        let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        let four = bytes.get(4..8)?;
        if bytes[0..2] == family(libc::AF_INET) {
            let ip = Ipv4Addr::from(<[u8; 4]>::try_from(four).ok()?);
            return Some(SocketAddrV4::new(ip, port).into());
        }
        if bytes[0..2] != family(libc::AF_INET6) {
            return None;
        }
        let ip = Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?);
        let flowinfo = u32::from_be_bytes(four.try_into().ok()?);
        let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
        Some(SocketAddrV6::new(ip, port, flowinfo, scope).into())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "AF_INET and AF_INET6 are below 16"
)]
fn family(family: libc::c_int) -> [u8; 2] {
    (family as libc::sa_family_t).to_ne_bytes()
}

#[expect(clippy::cast_possible_truncation, reason = "at most 28")]
fn len(bytes: usize) -> libc::socklen_t {
    bytes as libc::socklen_t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_round_trip() {
        for text in ["192.0.2.7:9000", "[2001:db8::7]:65535", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = Name([0xff; LEN]);
            let used = name.write(address);
            assert_eq!(name.read(used), Some(address));
        }
    }

    #[test]
    fn other_families_and_short_names_are_refused() {
        let mut name = Name::empty();
        assert_eq!(name.read(28), None);
        let used = name.write("[2001:db8::7]:1".parse().unwrap());
        assert_eq!(name.read(used - 1), None);
        assert_eq!(name.read(0), None);
    }
}
