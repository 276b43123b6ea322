//! What became of the frames: one end each, so that the ends' sum is all that came. What is lost after it
//! was sent changes its end.

use std::sync::atomic::{AtomicU64, Ordering};

use bpf::PerCpu;

use super::Error;
use crate::skel::router::types;

/// Frames and their bytes, as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

macro_rules! ends {
    ($($(#[$doc:meta])* $end:ident = $name:literal,)*) => {
        /// What becomes of a frame; `enum end` of bpf/layout.h.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum End {
            $($(#[$doc])* $end,)*
        }

        impl End {
            /// All of them, in the program's order.
            pub const ALL: &[Self] = &[$(Self::$end),*];

            /// As counters are named.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$end => $name,)*
                }
            }
        }
    };
}

ends! {
    Forwarded = "forwarded",
    /// A rule says so.
    DroppedByRule = "dropped-by-rule",
    /// Its route leads nowhere.
    DroppedByRoute = "dropped-by-route",
    /// The device that it leaves by is gone, is down or takes no redirected frames, or the frame has no room
    /// for a VLAN tag.
    DroppedAtDevice = "dropped-at-device",
    /// The driver of that device did not take it: its ring was full.
    /// Its bytes stay with those of `Forwarded`: the kernel does not say which of a batch it was.
    DroppedAtTransmit = "dropped-at-transmit",
    /// A rule may drop it, nothing here can ask the rules about it, and the kernel has none.
    DroppedUnfiltered = "dropped-unfiltered",
    /// For this host; this and all that follow are left to the kernel.
    Local = "local",
    /// Its route says that it is answered with an error.
    Refused = "refused",
    Unresolved = "unresolved",
    /// It leaves by a device that only the kernel can send by.
    RouteDevice = "route-device",
    NoRoute = "no-route",
    /// The next hop of its route was never given a meaning.
    NoMeaning = "no-meaning",
    /// A rule leaves it to the kernel.
    PuntedByRule = "punted-by-rule",
    /// Rules look at ports, which a fragment or an unknown extension header hides.
    Unkeyed = "unkeyed",
    /// The rules did not come to an end within the steps that a lookup may take.
    RulesUnfinished = "rules-unfinished",
    TtlExpired = "ttl-expired",
    TooLong = "too-long",
    /// IPv4 options, IPv6 hop-by-hop options.
    Options = "options",
    NotUnicast = "not-unicast",
    NotIp = "not-ip",
    Malformed = "malformed",
    Martian = "martian",
    /// The kernel looks whether its source is reached by the device that it came by.
    ReversePath = "rp-filter",
    /// The kernel's own rules decide about it.
    Policy = "policy",
    /// For another link-layer address, or with VLAN tags that no port has.
    NotOurs = "not-ours",
    /// The routes changed during each attempt to look the address up.
    Busy = "busy",
}

impl End {
    /// Whether the kernel gets the frame.
    pub fn is_punt(self) -> bool {
        self as usize >= Self::Local as usize
    }
}

/// What became of all frames since the start. What is on its way is forwarded until it is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// As the program counts: what is lost after it was sent is still among the forwarded.
    ends: Vec<Traffic>,
    /// Of the forwarded: the device did not take them.
    refused: u64,
}

impl Counters {
    pub(super) fn read(map: &PerCpu<types::ends>) -> Result<Self, Error> {
        match map.sum(0) {
            Ok(ends) => Ok(Self::of(&ends)),
            Err(error) => Err(Error::kernel("reading the counters")(error.source)),
        }
    }

    fn of(ends: &types::ends) -> Self {
        // Both sides have the same ends.
        let end: &[types::traffic; End::ALL.len()] = &ends.end;
        let traffic = end.iter().map(|end| Traffic {
            packets: end.packets,
            bytes: end.bytes,
        });
        Self {
            ends: traffic.collect(),
            refused: ends.refused,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ends.resize(End::ALL.len(), Traffic::default());
        for (sum, one) in self.ends.iter_mut().zip(&other.ends) {
            sum.packets += one.packets;
            sum.bytes += one.bytes;
        }
        self.refused += other.refused;
    }

    /// The frames that came to this end. [`End::Forwarded`] falls when frames are lost that were sent
    /// before: [`MonotonicCounters`] has it without that.
    pub fn get(&self, end: End) -> Traffic {
        let mut traffic = self.counted(end);
        match end {
            End::Forwarded => traffic.packets = traffic.packets.saturating_sub(self.lost()),
            End::DroppedAtDevice => traffic.packets += self.refused,
            _ => {}
        }
        traffic
    }

    fn counted(&self, end: End) -> Traffic {
        self.ends.get(end as usize).copied().unwrap_or_default()
    }

    /// Frames that were lost after they were sent.
    fn lost(&self) -> u64 {
        self.counted(End::DroppedAtTransmit).packets + self.refused
    }

    /// All frames.
    pub fn received(&self) -> Traffic {
        self.iter()
            .fold(Traffic::default(), |sum, (_, end)| Traffic {
                packets: sum.packets + end.packets,
                bytes: sum.bytes + end.bytes,
            })
    }

    /// Each end with its frames.
    pub fn iter(&self) -> impl Iterator<Item = (End, Traffic)> + '_ {
        End::ALL.iter().map(|end| (*end, self.get(*end)))
    }
}

/// Counters that never fall, as monitoring expects: a frame in flight is not counted as forwarded yet.
#[derive(Debug, Default)]
pub struct MonotonicCounters {
    forwarded: AtomicU64,
}

impl MonotonicCounters {
    /// `now`, with those forwarded of which that is certain: of the frames that were sent by the time of
    /// `earlier`, those lost by now are known. Between both readings lies [`settle`](super::settle).
    ///
    /// What was lost meanwhile of later frames is missing, too, until the next reading; where nothing
    /// moves nothing is missing.
    pub fn take(&self, earlier: &Counters, now: &Counters) -> Vec<(End, Traffic)> {
        let sent = earlier.counted(End::Forwarded).packets;
        let certain = sent.saturating_sub(now.lost());
        let before = self.forwarded.fetch_max(certain, Ordering::Relaxed);
        let mut ends: Vec<_> = now.iter().collect();
        ends[End::Forwarded as usize].1.packets = certain.max(before);
        ends
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

    use super::*;
    use proptest::prelude::*;

    /// The program and the kernel: frames that are sent, then lost or not.
    #[derive(Debug, Default)]
    struct Machine {
        sent: u64,
        on_their_way: u64,
        left: u64,
        refused: u64,
        dropped_by_rule: u64,
    }

    impl Machine {
        fn read(&self) -> Counters {
            let mut ends = types::ends {
                refused: self.refused,
                ..Default::default()
            };
            ends.end[End::Forwarded as usize].packets = self.sent;
            ends.end[End::DroppedByRule as usize].packets = self.dropped_by_rule;
            ends.end[End::DroppedAtTransmit as usize].packets = self.left;
            Counters::of(&ends)
        }

        fn send(&mut self, frames: u64) {
            self.sent += frames;
            self.on_their_way += frames;
        }

        /// Of those on their way, so many are lost; the others have left.
        fn settle(&mut self, left: u64, refused: u64) {
            self.left += left.min(self.on_their_way);
            self.on_their_way -= left.min(self.on_their_way);
            self.refused += refused.min(self.on_their_way);
            self.on_their_way = 0;
        }
    }

    fn packets(ends: &[(End, Traffic)], end: End) -> u64 {
        ends.iter().find(|(one, _)| *one == end).unwrap().1.packets
    }

    #[test]
    fn what_is_lost_later_was_never_published_as_forwarded() {
        let (published, mut machine) = (MonotonicCounters::default(), Machine::default());
        machine.send(10);
        let earlier = machine.read();
        assert_eq!(earlier.get(End::Forwarded).packets, 10);
        machine.settle(3, 2);
        machine.send(100);
        let ends = published.take(&earlier, &machine.read());
        assert_eq!(packets(&ends, End::Forwarded), 5);
        assert_eq!(packets(&ends, End::DroppedAtTransmit), 3);
        assert_eq!(packets(&ends, End::DroppedAtDevice), 2);
        machine.settle(100, 0);
        assert_eq!(machine.read().get(End::Forwarded).packets, 5);
        let ends = published.take(&machine.read(), &machine.read());
        assert_eq!(packets(&ends, End::Forwarded), 5);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64 * sys::require::fuzz()))]

        /// Readings while frames come and are lost: what was on its way at the earlier one is settled at
        /// the later one, where others may be on their way.
        #[test]
        fn published_counters_never_fall_and_add_up_at_rest(
            rounds in prop::collection::vec([0u64..50, 0..50, 0..30, 0..30, 0..50, 0..9], 1..40),
        ) {
            let (published, mut machine) = (MonotonicCounters::default(), Machine::default());
            let mut before = published.take(&machine.read(), &machine.read());
            for [first, between, left, refused, after, dropped] in rounds {
                machine.send(first);
                let earlier = machine.read();
                machine.send(between);
                machine.settle(left, refused);
                machine.send(after);
                machine.dropped_by_rule += dropped;
                let ends = published.take(&earlier, &machine.read());
                for ((_, now), (end, before)) in ends.iter().zip(&before) {
                    prop_assert!(now.packets >= before.packets, "{end:?}");
                }
                before = ends;
            }
            machine.settle(1, 1);
            let (ends, read) = (published.take(&machine.read(), &machine.read()), machine.read());
            prop_assert_eq!(&ends, &read.iter().collect::<Vec<_>>());
            let all: u64 = ends.iter().map(|(_, traffic)| traffic.packets).sum();
            prop_assert_eq!(all, machine.sent + machine.dropped_by_rule);
        }
    }
}
