//! When whoever reads the kernel's rings wakes: as seldom as latency and the rings' room allow.
//!
//! Every wake-up costs about what ten packets do, so that waking for each packet is dear, and so is a
//! fixed timer at low rates; a timer that is slow enough for those lets a burst overflow the ring. So
//! the reader sleeps for as long as a record may wait, and tells the kernel beforehand at which record
//! it is to be woken earlier: once, by the record that begins the second half of its ring. No rate is
//! estimated, and nothing has to be learnt after a change of rate.

use std::time::Duration;

/// The longest that a record waits for a reader that is not busy.
pub const LATENCY: Duration = Duration::from_millis(100);

/// When the reader of the kernel's rings wakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wakeup {
    /// After [`LATENCY`], or when a ring has filled to its half.
    #[default]
    Adaptive,
    /// For each record that comes while no other waits. Packets of several CPUs are then not brought
    /// into order where another CPU is just writing an older one.
    Every,
    /// After so long, whatever comes.
    Timer(Duration),
}

/// How a reader sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub longest: Duration,
    /// Behind the reader's position, where the record starts whose writer wakes it earlier.
    pub alarm: Option<u64>,
}

impl Wakeup {
    /// How the reader of a ring of `size` bytes sleeps while `waiting` of them wait; none: it goes on.
    pub fn pause(self, size: u64, waiting: u64) -> Option<Pause> {
        let pause = |longest, alarm| Some(Pause { longest, alarm });
        match self {
            Self::Timer(longest) => pause(longest, None),
            Self::Every if waiting == 0 => pause(LATENCY, None),
            Self::Adaptive if waiting < size / 2 => pause(LATENCY, Some(size / 2)),
            Self::Every | Self::Adaptive => None,
        }
    }
}

#[cfg(test)]
mod tests;
