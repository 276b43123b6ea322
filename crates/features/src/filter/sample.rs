//! Samples packets by a hash, so that every datapath, CPU and run selects the same ones. Twin of `bpf/sample.h`.
//!
//! Packets are selected independently with a uniform probability (RFC 5475 section 5.2.2). Selecting every N-th packet
//! would follow periodic traffic, and would require a counter shared by all CPUs.

use std::fmt;
use std::str::FromStr;

use crate::dissect::Packet;
use crate::key::Key;

/// A sampling rate as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub(crate) kept: u32,
    pub(crate) of: u32,
}

/// The unit that is kept or dropped as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Both directions of a flow: the rows of a kept flow are the same as without sampling.
    #[default]
    Flows,
    /// Individual packets: flows have fewer packets and longer gaps.
    Packets,
}

impl Default for Rate {
    fn default() -> Self {
        Self::ALL
    }
}

impl Rate {
    pub const ALL: Self = Self { kept: 1, of: 1 };

    pub fn is_all(&self) -> bool {
        self.kept == self.of
    }

    /// Whether a hash is kept. A higher rate keeps all hashes that a lower one keeps.
    #[inline]
    fn keeps(self, hash: u64) -> bool {
        ((hash >> 32) * u64::from(self.of)) >> 32 < u64::from(self.kept)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a rate; write 1/100, or 1/1 for all");
        let (kept, of) = text.split_once('/').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().map_err(|_| wrong());
        let (kept, of) = (number(kept)?, number(of)?);
        if kept == 0 || kept > of {
            return Err(wrong());
        }
        Ok(Self { kept, of })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kept, self.of)
    }
}

impl Unit {
    /// Whether this packet is kept.
    #[inline]
    pub(super) fn keeps(self, packet: &Packet<'_>, rate: Rate, seed: u64) -> bool {
        rate.is_all()
            || rate.keeps(match self {
                Self::Flows => of_flow(&packet.key, seed),
                Self::Packets => of_packet(packet, seed),
            })
    }
}

/// A hash that is the same for both directions, and independent of VLAN ids in the key.
fn of_flow(key: &Key, seed: u64) -> u64 {
    let mut hash = seed;
    for address in key.addresses {
        hash = mix(hash, high(address));
        hash = mix(hash, low(address));
    }
    hash = mix(
        hash,
        u64::from(key.ports[0])
            | u64::from(key.ports[1]) << 16
            | u64::from(key.protocol) << 48
            | u64::from(key.version) << 56,
    );
    mix(hash, key.network.into())
}

/// Packets of a flow differ in their timestamps or, within a clock tick, in TCP and IP numbers.
fn of_packet(packet: &Packet<'_>, seed: u64) -> u64 {
    let tcp = packet.tcp.unwrap_or_default();
    let mut hash = of_flow(&packet.key, seed);
    hash = mix(hash, packet.time_ns.cast_unsigned());
    hash = mix(
        hash,
        u64::from(packet.identification) << 32 | u64::from(packet.wire_length),
    );
    hash = mix(
        hash,
        u64::from(tcp.sequence) << 32 | u64::from(tcp.acknowledgement),
    );
    mix(hash, 0)
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

fn high(address: u128) -> u64 {
    low(address >> 64)
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn low(address: u128) -> u64 {
    address as u64
}
