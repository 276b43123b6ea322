//! Links of a set capacity that delay, jitter and lose frames by a seeded plan, whatever the kernel has: frames wait in
//! AF_XDP memory between two devices of a switch.

mod forwarder;
pub(crate) mod link;
mod schedule;

use serde::{Deserialize, Serialize};

/// Capacity, delay, jitter and loss of a link, independent in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Impairment {
    /// The least delay, in microseconds.
    pub delay_us: u32,
    /// Random delay beyond it, in microseconds: the most for `uniform`, the scale for `normal`.
    pub jitter_us: u32,
    pub distribution: Distribution,
    /// Frames lost of a million. They take up capacity, as if they were lost behind the bottleneck.
    pub loss_ppm: u32,
    /// Bits of Ethernet frames a second, without their checksums; 0 for as many as the machine carries.
    pub capacity_bps: u64,
    /// How long a frame may wait for the capacity, in microseconds. Frames that would wait longer are dropped, as by a
    /// queue of that many bytes; 0 for 50 000. All frames under way, in both directions, are at most 8192.
    pub queue_us: u32,
    /// Frames leave in the order they came, the later as late as the earlier.
    pub keep_order: bool,
    /// Equal seeds and equal traffic have equal fates.
    pub seed: u64,
}

/// How random delays are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// From 0 to the jitter.
    #[default]
    Uniform,
    /// The magnitude of a normal deviate whose standard deviation is the jitter.
    Normal,
}
