//! What became of frames. `steered` is the sum of `forwarded`, drops, what was given back, and what could
//! not be; once it is stopped, exactly.

use xsk::Outcome;

/// Why a frame was given back to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Given {
    /// For this host.
    Local = 0,
    NoRoute = 1,
    /// A rule leaves it to the kernel.
    Rule = 2,
    /// Its headers are not plain.
    Unkeyed = 3,
    /// It must be answered with an ICMP error.
    Refused = 4,
    /// The neighbour's address is not known, or the next hop's meaning.
    Unresolved = 5,
    /// It leaves by a device that is not among the plane's.
    Device = 6,
    TooLong = 7,
    TtlExpired = 8,
    /// The kernel's own rules decide about it.
    Policy = 9,
}

impl Given {
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

    /// As the `xdp` data plane names the same end.
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

/// Frames, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By the program, on all devices.
    pub seen: u64,
    /// Handed to threads; the others went on to the stack at once.
    pub steered: u64,
    /// Dropped by the program: a rule may drop them, threads cannot ask the rules, and the kernel has none.
    pub unfiltered: u64,
    pub forwarded: u64,
    pub dropped_by_rule: u64,
    /// Its route leads nowhere.
    pub dropped_by_route: u64,
    /// As `unfiltered`, by threads.
    pub dropped_unfiltered: u64,
    /// The device that it leaves by took it not.
    pub drops_transmit: u64,
    /// Its thread was too slow.
    pub drops_queue_full: u64,
    /// A device failed that was to decide about it, and nothing was behind it.
    pub drops_undecided: u64,
    /// By reason, those among it that then found no room included.
    pub given_back: [u64; Given::ALL.len()],
    /// Of these, what found no room: more came than the stack takes back.
    pub drops_give_back: u64,
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
        self.drops_give_back += other.drops_give_back;
        for (count, other) in self.given_back.iter_mut().zip(other.given_back) {
            *count += other;
        }
    }

    /// Everything that became of steered frames.
    pub fn ends(&self) -> u64 {
        self.forwarded
            + self.dropped_by_rule
            + self.dropped_by_route
            + self.dropped_unfiltered
            + self.drops_transmit
            + self.drops_queue_full
            + self.drops_undecided
            + self.given_back.iter().sum::<u64>()
    }
}
