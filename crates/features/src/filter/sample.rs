//! Which of the packets that pass are kept: by a hash, so that every datapath, CPU and run chooses alike.
//! Twin of `bpf/sample.h`.
//!
//! Packets are chosen independently of each other with one probability (RFC 5475 section 5.2.2): taking
//! every N-th would follow whatever is periodic in the traffic, and need a count that all CPUs share.

use std::fmt;
use std::str::FromStr;

use crate::dissect::Packet;
use crate::key::Key;

/// How many of how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub(crate) kept: u32,
    pub(crate) of: u32,
}

/// What is kept or left out as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Both directions of a flow: its rows are as if there were no sampling.
    #[default]
    Flows,
    /// Each packet by itself: flows have fewer packets, and longer gaps.
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

    /// Whether what has this hash is kept. What a rate keeps, every higher one keeps as well.
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
    /// Whether this packet is among those kept.
    #[inline]
    pub(super) fn keeps(self, packet: &Packet<'_>, rate: Rate, seed: u64) -> bool {
        rate.is_all()
            || rate.keeps(match self {
                Self::Flows => of_flow(&packet.key, seed),
                Self::Packets => of_packet(packet, seed),
            })
    }
}

/// The same for both directions, and whether or not VLAN ids tell flows apart.
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

/// Packets of one flow differ by their time, or, in a clock's one tick, by what TCP and IP number.
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
