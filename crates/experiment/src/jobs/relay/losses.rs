//! Where a trial's missing packets went: every drop on the way that something counts, by name.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use relay::core::StreamView;
use relay::counters::Drops;
use testbed::Host;

use super::stage::Stage;
use crate::outcome::Outcome;

/// Lost deliveries by the place of the drop. Every subscriber misses a packet that is dropped before it is copied.
type DropCounts = BTreeMap<String, u64>;

/// The drops of a stage since `watch`.
#[derive(Debug)]
pub(super) struct Losses<'a> {
    stage: &'a Stage,
    /// `None` for an external program, whose drops are not known.
    before: Option<DropCounts>,
}

impl<'a> Losses<'a> {
    pub(super) fn watch(stage: &'a Stage) -> Result<Self> {
        let before = drop_counts(stage)?;
        Ok(Self { stage, before })
    }

    /// Notes what has been dropped since, and whether that is what the receivers miss.
    pub(super) fn note(self, outcome: &mut Outcome) -> Result<()> {
        let (Some(before), Some(now)) = (self.before, drop_counts(self.stage)?) else {
            return Ok(());
        };
        let since = |(place, count): (String, u64)| {
            let before = before.get(&place).copied().unwrap_or_default();
            (format!("drops.{place}"), count.saturating_sub(before))
        };
        let drops: DropCounts = now.into_iter().map(since).collect();
        outcome
            .violations
            .extend(unaccounted(&outcome.counts, &drops));
        outcome.counts.extend(drops);
        Ok(())
    }
}

fn unaccounted(counts: &BTreeMap<String, u64>, drops: &DropCounts) -> Option<String> {
    let missing = *counts.get("missing")?;
    let named: u64 = drops.values().sum();
    (missing != named).then(|| format!("{missing} packets missing, {named} counted where dropped"))
}

fn drop_counts(stage: &Stage) -> Result<Option<DropCounts>> {
    if stage.has_program() {
        return Ok(None);
    }
    let copies = stage.subscribers.len() as u64;
    let sender = dropped_by(stage.bed.host("sender")?, &stage.first_hop()?.0.name)?;
    let mut counts = DropCounts::from([("first_link".to_owned(), copies * sender)]);
    if let Some(relay) = stage.relay() {
        let host = stage.bed.host("relay")?;
        let egress = &host.interface("receiver")?.name;
        counts.insert("last_link".to_owned(), dropped_by(host, egress)?);
        let streams: Vec<StreamView> = serde_json::from_value(relay.counters(host)?)?;
        for stream in &streams {
            add(&mut counts, &stream.drops, copies)?;
            for subscriber in &stream.subscribers {
                add(&mut counts, &subscriber.drops, 1)?;
            }
        }
    }
    Ok(Some(counts))
}

fn add(counts: &mut DropCounts, drops: &Drops, copies: u64) -> Result<()> {
    let named: DropCounts = serde_json::from_value(serde_json::to_value(drops)?)?;
    for (reason, packets) in named {
        *counts.entry(reason).or_default() += copies * packets;
    }
    Ok(())
}

/// Packets that a device did not get rid of.
fn dropped_by(host: &Host, device: &str) -> Result<u64> {
    let table = host.read("/proc/thread-self/net/dev")?;
    transmit_drops(&table, device).with_context(|| format!("no statistics of {device}"))
}

/// The fourth of the counters of transmission, which follow the eight of reception.
fn transmit_drops(table: &str, device: &str) -> Option<u64> {
    let counters = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    counters.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_whole_name() {
        let table = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
  to-a2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
  to-a:17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
";
        assert_eq!(transmit_drops(table, "to-a"), Some(28));
        assert_eq!(transmit_drops(table, "to-a2"), Some(12));
        assert_eq!(transmit_drops(table, "to"), None);
    }

    #[test]
    fn every_missing_packet_must_have_been_counted_where_it_was_dropped() {
        let counts = |missing| BTreeMap::from([("missing".to_owned(), missing)]);
        let drops = DropCounts::from([("no_neighbour".to_owned(), 4), ("last_link".to_owned(), 2)]);
        assert_eq!(unaccounted(&counts(6), &drops), None);
        assert_eq!(
            unaccounted(&counts(7), &drops).unwrap(),
            "7 packets missing, 6 counted where dropped"
        );
        assert_eq!(unaccounted(&BTreeMap::new(), &drops), None);
    }
}
