//! Synthetic work on each packet before it is forwarded: CPU time that is spent, and parity that is computed.
//! It does not choose receivers.

use std::time::Duration;

use sys::clock::monotonic_ns;

use super::fan_out::Train;
use super::fec::Encoder;
use crate::plan::PerPacket;

/// How long a worker may process packets before others may lock its state.
const STRIDE: Duration = Duration::from_millis(1);

/// The work on one stream's packets.
#[derive(Debug, Default)]
pub(super) struct SyntheticWork {
    spin: Duration,
    fec: Option<Encoder>,
}

/// A parity datagram. It is sent with the TTL and TOS of the last packet of its group.
#[derive(Debug)]
pub(super) struct Parity {
    payload: Vec<u8>,
    ttl: u8,
    tos: u8,
}

impl Parity {
    pub(super) fn train(&self) -> Train<'_> {
        Train {
            payload: &self.payload,
            segment: None,
            ttl: self.ttl,
            tos: self.tos,
        }
    }
}

impl SyntheticWork {
    pub(super) fn new(work: &PerPacket) -> Self {
        let mut synthetic_work = Self::default();
        synthetic_work.update(work);
        synthetic_work
    }

    /// Changes the work. A group that is being collected is completed.
    pub(super) fn update(&mut self, work: &PerPacket) {
        self.spin = work.spin;
        if self.fec.as_ref().map(Encoder::group) != work.fec_group {
            self.fec = work.fec_group.map(Encoder::new);
        }
    }

    /// Number of packets to process before others may lock the state.
    pub(super) fn stride(&self) -> usize {
        STRIDE
            .as_nanos()
            .checked_div(self.spin.as_nanos())
            .map_or(usize::MAX, |packets| {
                usize::try_from(packets).unwrap_or(usize::MAX).max(1)
            })
    }

    /// Does the work on these packets, and returns the parity of the groups that they complete.
    pub(super) fn process(&mut self, trains: &[Train<'_>]) -> Vec<Parity> {
        if !self.spin.is_zero() {
            let packets: u64 = trains.iter().map(Train::packets).sum();
            spend(self.spin, packets);
        }
        let Some(encoder) = &mut self.fec else {
            return Vec::new();
        };
        let parity = |single: Train<'_>| {
            Some(Parity {
                payload: encoder.add(single.payload)?,
                ttl: single.ttl,
                tos: single.tos,
            })
        };
        let singles = trains.iter().copied().flat_map(Train::cut);
        singles.filter_map(parity).collect()
    }
}

/// Spends CPU time for each of the packets.
fn spend(each: Duration, packets: u64) {
    let each = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
    let until = monotonic_ns().saturating_add(each.saturating_mul(packets));
    while monotonic_ns() < until {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::userspace::fan_out::tests::train;

    #[test]
    fn parity_is_made_of_packets_not_of_trains() {
        let work = PerPacket {
            fec_group: Some(4),
            ..PerPacket::default()
        };
        let mut synthetic_work = SyntheticWork::new(&work);
        assert!(synthetic_work.process(&[train(&[1; 50], None)]).is_empty());
        // Seven packets of 100 bytes and one of 20 complete two groups with the packet before, and leave one
        // over.
        synthetic_work.update(&work);
        let parities = synthetic_work.process(&[train(&[2; 720], Some(100))]);
        assert_eq!(parities.len(), 2);
        let last = parities[1].train();
        assert_eq!((last.ttl, last.tos, last.packets()), (61, 0xb8, 1));
        assert_eq!(last.payload.len(), 16 + 100);
    }

    #[test]
    fn work_takes_its_time_and_shortens_the_stride() {
        let mut synthetic_work = SyntheticWork::new(&PerPacket {
            spin: Duration::from_micros(200),
            fec_group: None,
        });
        assert_eq!(synthetic_work.stride(), 5);
        let before = monotonic_ns();
        assert!(
            synthetic_work
                .process(&[train(&[0; 30], Some(10))])
                .is_empty()
        );
        assert!(monotonic_ns() - before >= 600_000);
        assert_eq!(SyntheticWork::default().stride(), usize::MAX);
    }
}
