//! The counts of the probes, and the identities that show whether the counts can be believed.

use stats::Histogram;

use super::Subscriber;
use super::skel::types;

/// Everything one trial's probes saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Packets sent, by flow.
    pub sent: Vec<u64>,
    /// The sender's device; none where the sender bypasses tc.
    pub sender: Option<Device>,
    pub receivers: Vec<Device>,
    /// In the configuration's order.
    pub subscribers: Vec<SubscriberReport>,
    /// Delays in nanoseconds of the first copy of each packet, all subscribers together.
    pub delay: Histogram,
}

/// The packets that passed one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub packets: u64,
    /// Packets with the match key.
    pub matched: u64,
    /// Packets of our run to an address that is not a subscriber's.
    pub foreign: u64,
    /// With our magic, of another run.
    pub stale: u64,
    /// GSO superframes: several datagrams that a probe sees as one.
    pub superframes: u64,
    /// By payload: packets equal to an earlier one.
    pub collisions: u64,
}

/// The packets that one subscriber got.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriberReport {
    pub subscriber: Subscriber,
    /// Packets sent in its flow.
    pub sent: u64,
    pub received: u64,
    pub unique: u64,
    pub duplicates: u64,
    /// Packets of another flow or run.
    pub foreign: u64,
    /// Sequence numbers past the planned capacity.
    pub beyond: u64,
    /// Sent and not seen in the bitmap.
    pub missing: u64,
    /// Most consecutive packets missing.
    pub longest_loss: u64,
    /// RFC 4737: unique packets that arrived after one that was sent later.
    pub reordered: u64,
    /// Unique packets without a delay: the window was too small.
    pub unmatched: u64,
    /// Arrivals before their departure: the clocks or the key are wrong.
    pub negative: u64,
    /// Longest time without an arrival between the first and the last, in nanoseconds.
    pub max_gap_ns: u64,
    /// RFC 3550 interarrival jitter after the last packet, in nanoseconds.
    pub jitter_ns: u64,
    /// Its own delays, when histograms are split.
    pub delay: Option<Histogram>,
}

impl Report {
    /// The packets sent, and sums over the subscribers; `due` counts the packets to be delivered to
    /// each. `received` and `foreign` include packets to addresses that no subscriber has.
    pub fn counts(&self) -> [(&'static str, u64); 9] {
        let sum =
            |field: fn(&SubscriberReport) -> u64| self.subscribers.iter().map(field).sum::<u64>();
        let astray: u64 = self.receivers.iter().map(|d| d.foreign + d.stale).sum();
        [
            ("sent", self.sent.iter().sum()),
            ("due", sum(|s| s.sent)),
            ("received", sum(|s| s.received) + astray),
            ("unique", sum(|s| s.unique)),
            ("duplicates", sum(|s| s.duplicates)),
            ("missing", sum(|s| s.missing)),
            ("foreign", sum(|s| s.foreign) + astray),
            ("reordered", sum(|s| s.reordered)),
            ("negative_delays", sum(|s| s.negative)),
        ]
    }

    /// Each identity that does not hold, in words. Empty when the counts can be believed.
    pub fn violations(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for subscriber in &self.subscribers {
            subscriber.violations(&mut broken);
        }
        for device in self.receivers.iter().chain(&self.sender) {
            if device.superframes > 0 {
                broken.push(format!("{} GSO superframes", device.superframes));
            }
            if device.collisions > 0 {
                broken.push(format!("{} equal payloads", device.collisions));
            }
        }
        broken
    }
}

impl SubscriberReport {
    pub(super) fn of(
        subscriber: Subscriber,
        sent: u64,
        tally: &types::tally,
        arrival: &types::arrival,
        seen: &[u64],
        delay: Option<Histogram>,
    ) -> Self {
        let (missing, longest_loss) = losses(seen, sent);
        Self {
            subscriber,
            sent,
            received: tally.received,
            unique: tally.unique,
            duplicates: tally.duplicates,
            foreign: tally.foreign,
            beyond: tally.beyond,
            missing,
            longest_loss,
            reordered: tally.reordered,
            unmatched: tally.unmatched,
            negative: tally.negative,
            max_gap_ns: arrival.max_gap_ns,
            jitter_ns: arrival.jitter_16 >> 4,
            delay,
        }
    }

    fn violations(&self, broken: &mut Vec<String>) {
        let to = self.subscriber.address;
        if self.received != self.unique + self.duplicates + self.foreign {
            broken.push(format!(
                "{to}: received {} is not unique {} + duplicates {} + foreign {} (beyond capacity {})",
                self.received, self.unique, self.duplicates, self.foreign, self.beyond
            ));
        }
        if self.unique + self.missing != self.sent {
            broken.push(format!(
                "{to}: unique {} + missing {} is not sent {}",
                self.unique, self.missing, self.sent
            ));
        }
        if self.negative > 0 {
            broken.push(format!("{to}: {} negative delays", self.negative));
        }
        if self.unmatched > 0 {
            broken.push(format!("{to}: {} stamps overwritten", self.unmatched));
        }
    }
}

impl Device {
    pub(super) fn of(sums: &types::device) -> Self {
        Self {
            packets: sums.packets,
            matched: sums.matched,
            foreign: sums.foreign,
            stale: sums.stale,
            superframes: sums.superframes,
            collisions: sums.collisions,
        }
    }
}

/// (missing, most consecutive missing) of the first `sent` sequence numbers.
fn losses(seen: &[u64], sent: u64) -> (u64, u64) {
    let (mut missing, mut longest, mut run) = (0, 0, 0);
    for sequence in 0..sent {
        let word = usize::try_from(sequence / 64)
            .ok()
            .and_then(|at| seen.get(at));
        if word.is_some_and(|word| word >> (sequence % 64) & 1 == 1) {
            run = 0;
        } else {
            run += 1;
            missing += 1;
            longest = longest.max(run);
        }
    }
    (missing, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_and_their_longest_run_is_found() {
        assert_eq!(losses(&[!0], 64), (0, 0));
        assert_eq!(losses(&[!0 << 1 & !(0b11 << 62), !1], 128), (4, 3));
        assert_eq!(losses(&[], 3), (3, 3), "what no word covers was not seen");
        assert_eq!(losses(&[0], 0), (0, 0));
    }
}
