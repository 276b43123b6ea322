//! Counters of frames. Once the plane is stopped, `steered` is the sum of forwarded, dropped and punted
//! frames.

use xsk::Outcome;

/// Why a frame was punted to the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PuntReason {
    /// For this host.
    Local = 0,
    NoRoute = 1,
    /// A rule punts it.
    Rule = 2,
    /// It has no key for the rules.
    Unkeyed = 3,
    /// It must be answered with an ICMP error.
    Refused = 4,
    /// The neighbour's address or the next hop's forwarding is not known.
    Unresolved = 5,
    /// Its egress device is not one of the plane's.
    Device = 6,
    TooLong = 7,
    TtlExpired = 8,
    /// The kernel's own rules apply to it.
    Policy = 9,
}

impl PuntReason {
    pub const ALL: [Self; 10] = [
        Self::Local,
        Self::NoRoute,
        Self::Rule,
        Self::Unkeyed,
        Self::Refused,
        Self::Unresolved,
        Self::Device,
        Self::TooLong,
        Self::TtlExpired,
        Self::Policy,
    ];

    /// The name that the `xdp` data plane uses for the same outcome.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::NoRoute => "no-route",
            Self::Rule => "punted-by-rule",
            Self::Unkeyed => "unkeyed",
            Self::Refused => "refused",
            Self::Unresolved => "unresolved",
            Self::Device => "route-device",
            Self::TooLong => "too-long",
            Self::TtlExpired => "ttl-expired",
            Self::Policy => "policy",
        }
    }
}

/// Numbers of frames by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Seen by the program on all devices.
    pub seen: u64,
    /// Steered to threads. The program passed the others to the stack.
    pub steered: u64,
    /// Dropped by the program: a rule may drop them, threads cannot ask the rules, and the kernel has none.
    pub unfiltered: u64,
    pub forwarded: u64,
    pub dropped_by_rule: u64,
    /// Its route leads nowhere.
    pub dropped_by_route: u64,
    /// As `unfiltered`, by threads.
    pub dropped_unfiltered: u64,
    /// The egress device did not accept it.
    pub drops_transmit: u64,
    /// Its thread was too slow.
    pub drops_queue_full: u64,
    /// The GPU was lost, and there is no CPU fallback.
    pub drops_undecided: u64,
    /// Punted frames by reason, including those that were then dropped.
    pub punted: [u64; PuntReason::ALL.len()],
    /// Punted frames that were dropped: the stack did not accept them in time.
    pub drops_reinject: u64,
}

impl Counters {
    pub(super) fn sent(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Sent => self.forwarded += 1,
            Outcome::Lost => self.drops_transmit += 1,
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.forwarded += other.forwarded;
        self.dropped_by_rule += other.dropped_by_rule;
        self.dropped_by_route += other.dropped_by_route;
        self.dropped_unfiltered += other.dropped_unfiltered;
        self.drops_transmit += other.drops_transmit;
        self.drops_queue_full += other.drops_queue_full;
        self.drops_undecided += other.drops_undecided;
        self.drops_reinject += other.drops_reinject;
        for (count, other) in self.punted.iter_mut().zip(other.punted) {
            *count += other;
        }
    }

    /// Steered frames whose outcome is known.
    pub fn ends(&self) -> u64 {
        self.forwarded
            + self.dropped_by_rule
            + self.dropped_by_route
            + self.dropped_unfiltered
            + self.drops_transmit
            + self.drops_queue_full
            + self.drops_undecided
            + self.punted.iter().sum::<u64>()
    }
}
