//! Chains of rules with jumps and policies, made into one list of which the first match counts.

use std::collections::HashMap;

use acl::Action;
use foldhash::fast::RandomState;

use super::RuleSet;
use super::region::{self, Region};
use crate::budget::{Budget, Exhaustion};
use crate::error::{Fault, Place};

/// The kernel allows 16 jumps within each other in nftables and few more in iptables.
const MAX_DEPTH: usize = 64;
/// So many regions are remembered of the packets that have come to a chain.
const MAX_KNOWN: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Decide(Action),
    /// As if the rule were not there.
    Continue,
    Return,
    Jump(usize),
    Goto(usize),
}

/// A rule: packets in any of the regions may match, and if it is certain, do.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) regions: Vec<Region>,
    pub(super) certain: bool,
    pub(super) verdict: Verdict,
    pub(super) origin: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) steps: Vec<Step>,
    /// What becomes of packets at the end of a base chain, and the place of its origin.
    pub(super) policy: Action,
    pub(super) origin: u32,
}

impl Step {
    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let regions = self.regions.iter().map(Region::bytes).sum::<usize>();
        2 * size_of::<Self>() + regions
    }
}

/// Which chains packets come to that meet the base chains.
pub(super) fn find_reachable(
    chains: &[Chain],
    bases: impl IntoIterator<Item = usize>,
) -> Vec<bool> {
    let mut reachable = vec![false; chains.len()];
    let mut open: Vec<usize> = bases.into_iter().collect();
    while let Some(at) = open.pop() {
        if std::mem::replace(&mut reachable[at], true) {
            continue;
        }
        open.extend(
            chains[at]
                .steps
                .iter()
                .filter_map(|step| match step.verdict {
                    Verdict::Jump(to) | Verdict::Goto(to) => Some(to),
                    Verdict::Decide(_) | Verdict::Continue | Verdict::Return => None,
                }),
        );
    }
    reachable
}

/// Compiles what packets meet in the base chains, one after another: accepted by one, a packet
/// comes to the next. The rules are added to `rules`, which has their origins.
pub(super) fn compile(
    chains: &[Chain],
    bases: &[usize],
    rules: RuleSet,
    families: &[bool],
    budget: &Budget,
) -> Result<RuleSet, Fault> {
    let mut compiler = Compiler {
        chains,
        budget,
        rules,
        decided: HashMap::default(),
        through: HashMap::default(),
    };
    let all: Vec<Region> = families.iter().map(|v6| Region::all(*v6)).collect();
    compiler.base(bases, all, 0)?;
    Ok(compiler.rules)
}

type Memory<K> = HashMap<K, Vec<Region>, RandomState>;

struct Compiler<'a> {
    chains: &'a [Chain],
    budget: &'a Budget,
    rules: RuleSet,
    /// Packets that have come to the base chains, by how many of them were left: all are decided.
    decided: Memory<usize>,
    /// Packets that have come through a chain, with so many base chains left: what the chain decides of them is in the
    /// list, and need not be there twice. Chains that jump to one another would else multiply.
    through: Memory<(usize, usize)>,
}

impl Compiler<'_> {
    /// Emits what becomes of `packets` from the first of these base chains on.
    fn base(&mut self, bases: &[usize], packets: Vec<Region>, origin: u32) -> Result<(), Fault> {
        let Some((first, rest)) = bases.split_first() else {
            return self.emit(&packets, Action::Accept, origin);
        };
        let known = self.decided.get(&bases.len());
        let split = split(packets, known, self.budget);
        let (packets, known) = self.locate(origin, split)?;
        // Rules before decide them. This one is in the list as one that never comes first.
        self.emit(&known, Action::Accept, origin)?;
        if packets.is_empty() {
            return Ok(());
        }
        let kept = remember(&mut self.decided, bases.len(), &packets, self.budget);
        self.locate(origin, kept)?;
        let chains = self.chains;
        let chain = &chains[*first];
        let through = self.chain(*first, packets, rest, (0, origin))?;
        match chain.policy {
            Action::Accept => self.base(rest, through, chain.origin),
            action => self.emit(&through, action, chain.origin),
        }
    }

    /// Emits what a chain decides of `packets`, and returns a set of packets that come out of its
    /// end; packets that have been decided may be among them, as the first match counts. `origin` is that of the jump.
    fn chain(
        &mut self,
        at: usize,
        packets: Vec<Region>,
        rest: &[usize],
        (depth, origin): (usize, u32),
    ) -> Result<Vec<Region>, Fault> {
        let (chains, budget) = (self.chains, self.budget);
        let key = (at, rest.len());
        let split = split(packets, self.through.get(&key), budget);
        let (mut packets, mut through) = self.locate(origin, split)?;
        if packets.is_empty() {
            return Ok(through);
        }
        let met: Vec<Region> = packets.iter().take(MAX_KNOWN).cloned().collect();
        for step in &chains[at].steps {
            let origin = step.origin;
            let met = region::intersections(&packets, &step.regions, budget);
            let met = self.locate(origin, met)?;
            if met.is_empty() {
                continue;
            }
            if depth == MAX_DEPTH {
                return self.refuse(origin, "chains jump in a circle, or too deep");
            }
            match step.verdict {
                Verdict::Continue => {}
                _ if !step.certain => self.emit(&met, Action::Punt, origin)?,
                Verdict::Decide(Action::Accept) => self.base(rest, met, origin)?,
                Verdict::Decide(action) => self.emit(&met, action, origin)?,
                Verdict::Return => {
                    let left = region::difference(packets, &met, budget);
                    packets = self.locate(origin, left)?;
                    through.extend(met);
                }
                Verdict::Jump(to) => {
                    self.chain(to, met, rest, (depth + 1, origin))?;
                }
                Verdict::Goto(to) => {
                    let left = region::difference(packets, &met, budget);
                    packets = self.locate(origin, left)?;
                    through.extend(self.chain(to, met, rest, (depth + 1, origin))?);
                }
            }
            let bytes = packets.iter().chain(&through).map(Region::bytes).sum();
            self.locate(origin, budget.room(bytes))?;
        }
        // Only now: a chain that comes back to itself has decided nothing yet.
        let kept = remember(&mut self.through, key, &met, budget);
        self.locate(origin, kept)?;
        through.extend(packets);
        Ok(through)
    }

    fn emit(&mut self, packets: &[Region], action: Action, origin: u32) -> Result<(), Fault> {
        for region in packets {
            let emitted = region.emit(action, origin, &mut self.rules, self.budget);
            self.locate(origin, emitted)?;
        }
        Ok(())
    }

    fn locate<T>(&self, origin: u32, result: Result<T, Exhaustion>) -> Result<T, Fault> {
        result.or_else(|exhausted| self.refuse(origin, &exhausted.to_string()))
    }

    fn refuse<T>(&self, origin: u32, what: &str) -> Result<T, Fault> {
        let place = self.rules.origins.get(origin as usize);
        Err(Fault::new(
            place.map_or(Place::File, |origin| origin.place),
            what,
        ))
    }
}

/// The regions that are in none of `known`, and the others.
fn split(
    packets: Vec<Region>,
    known: Option<&Vec<Region>>,
    budget: &Budget,
) -> Result<(Vec<Region>, Vec<Region>), Exhaustion> {
    let Some(known) = known else {
        return Ok((packets, Vec::new()));
    };
    let (mut new, mut old) = (Vec::new(), Vec::new());
    for region in packets {
        let mut covered = false;
        for known in known {
            covered = covered || known.covers(&region, budget)?;
        }
        let list = if covered { &mut old } else { &mut new };
        list.push(region);
    }
    Ok((new, old))
}

fn remember<K: std::hash::Hash + Eq>(
    memory: &mut Memory<K>,
    key: K,
    packets: &[Region],
    budget: &Budget,
) -> Result<(), Exhaustion> {
    let known = memory.entry(key).or_default();
    for region in packets.iter().take(MAX_KNOWN.saturating_sub(known.len())) {
        budget.hold(region.bytes())?;
        known.push(region.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
