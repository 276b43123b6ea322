//! Announcements and withdrawals as a full table sees them: mostly a known prefix with another next
//! hop, sometimes a withdrawal, which is announced again later; few prefixes have most of it.

use lpm::{NextHop, Prefix, Rib};

use super::{Random, Rng, hop};

/// An announcement, or a withdrawal when there is no next hop.
pub type Update<A> = (Prefix<A>, Option<NextHop>);

/// Share of updates that withdraw; as many announce again what was withdrawn.
const WITHDRAWAL_SHARE: f64 = 0.1;

pub fn updates<A: Random>(rib: &Rib<A>, hops: u64, count: usize, seed: u64) -> Vec<Update<A>> {
    let mut rng = Rng::new(seed);
    let mut prefixes: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
    for at in (1..prefixes.len()).rev() {
        prefixes.swap(at, rng.index(at + 1));
    }
    let mut away: Vec<Prefix<A>> = Vec::new();
    let mut gone = std::collections::HashSet::new();
    let mut updates = Vec::with_capacity(count);
    while updates.len() < count {
        let draw = rng.unit();
        // Rank r with probability about 1/r: uniform in the logarithm.
        let rank = (prefixes.len() as f64).powf(rng.unit()) as usize;
        let prefix = prefixes[rank.min(prefixes.len() - 1)];
        let new = hop(1 + rng.next_u64() % hops);
        if draw < WITHDRAWAL_SHARE && gone.insert(prefix) {
            away.push(prefix);
            updates.push((prefix, None));
        } else if draw < 2.0 * WITHDRAWAL_SHARE && !away.is_empty() {
            let back = away.swap_remove(rng.index(away.len()));
            gone.remove(&back);
            updates.push((back, Some(new)));
        } else if !gone.contains(&prefix) {
            updates.push((prefix, Some(new)));
        }
    }
    updates
}
