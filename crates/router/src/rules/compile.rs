//! Chains of rules with jumps and policies, made into one list of which the first match counts.

use acl::Action;

use super::region::Region;
use super::{Note, Origin, RuleSet};
use crate::error::{Fault, Place};

/// Lists longer than this are refused: no engine holds them.
const MOST_RULES: usize = 4 << 20;
/// A packet's way through chains is cut into no more regions than this.
const MOST_REGIONS: usize = 1 << 16;
/// The kernel allows 16 jumps within each other in nftables and few more in iptables.
const DEEPEST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
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
    pub(super) then: Then,
    pub(super) origin: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) steps: Vec<Step>,
    /// What becomes of packets at the end of a base chain, and the place of its origin.
    pub(super) policy: Action,
    pub(super) origin: u32,
}

/// Compiles what packets meet in the base chains, one after another: accepted by one, a packet
/// comes to the next.
pub(super) fn compile(
    chains: &[Chain],
    bases: &[usize],
    origins: Vec<Origin>,
    notes: Vec<Note>,
    families: &[bool],
) -> Result<RuleSet, Fault> {
    let rules = RuleSet {
        origins,
        notes,
        ..RuleSet::default()
    };
    let mut compiler = Compiler { chains, rules };
    let all: Vec<Region> = families.iter().map(|v6| Region::all(*v6)).collect();
    compiler.base(bases, all, 0)?;
    Ok(compiler.rules)
}

struct Compiler<'a> {
    chains: &'a [Chain],
    rules: RuleSet,
}

impl Compiler<'_> {
    /// Emits what becomes of `packets` from the first of these base chains on.
    fn base(&mut self, bases: &[usize], packets: Vec<Region>, origin: u32) -> Result<(), Fault> {
        let Some((first, rest)) = bases.split_first() else {
            return self.emit(&packets, Action::Accept, origin);
        };
        let chains = self.chains;
        let chain = &chains[*first];
        let through = self.chain(*first, packets, rest, 0)?;
        match chain.policy {
            Action::Accept => self.base(rest, through, chain.origin),
            action => self.emit(&through, action, chain.origin),
        }
    }

    /// Emits what a chain decides of `packets`, and returns a set of packets that come out of its
    /// end; packets that have been decided may be among them, as the first match counts.
    fn chain(
        &mut self,
        at: usize,
        mut packets: Vec<Region>,
        rest: &[usize],
        depth: usize,
    ) -> Result<Vec<Region>, Fault> {
        let chains = self.chains;
        let mut through = Vec::new();
        for step in &chains[at].steps {
            let met = intersect(&packets, &step.regions);
            if met.is_empty() {
                continue;
            }
            if depth == DEEPEST {
                return self.refuse(step.origin, "chains jump in a circle, or too deep");
            }
            match step.then {
                Then::Continue => {}
                _ if !step.certain => self.emit(&met, Action::Punt, step.origin)?,
                Then::Decide(Action::Accept) => self.base(rest, met, step.origin)?,
                Then::Decide(action) => self.emit(&met, action, step.origin)?,
                Then::Return => {
                    packets = subtract(&packets, &met);
                    through.extend(met);
                }
                Then::Jump(to) => {
                    self.chain(to, met, rest, depth + 1)?;
                }
                Then::Goto(to) => {
                    packets = subtract(&packets, &met);
                    through.extend(self.chain(to, met, rest, depth + 1)?);
                }
            }
            if packets.len() + through.len() > MOST_REGIONS {
                let what = "returns and gotos cut packets into too many parts: simplify the chain";
                return self.refuse(step.origin, what);
            }
        }
        through.extend(packets);
        Ok(through)
    }

    fn emit(&mut self, packets: &[Region], action: Action, origin: u32) -> Result<(), Fault> {
        let count = packets
            .iter()
            .map(Region::count)
            .fold(0, usize::saturating_add);
        let known = self.rules.v4.len() + self.rules.v6.len();
        if known.saturating_add(count) > MOST_RULES {
            let what =
                format!("comes to {count} rules after {known}, where {MOST_RULES} are the most");
            return self.refuse(origin, &what);
        }
        for region in packets {
            if region.v6 {
                region.rules(action, origin, &mut self.rules.v6);
            } else {
                region.rules(action, origin, &mut self.rules.v4);
            }
        }
        Ok(())
    }

    fn refuse<T>(&self, origin: u32, what: &str) -> Result<T, Fault> {
        let place = self.rules.origins.get(origin as usize);
        Err(Fault::new(
            place.map_or(Place::File, |origin| origin.place),
            what,
        ))
    }
}

fn intersect(a: &[Region], b: &[Region]) -> Vec<Region> {
    let with = |a: &Region| b.iter().filter_map(|b| a.intersect(b)).collect::<Vec<_>>();
    a.iter().flat_map(with).collect()
}

fn subtract(from: &[Region], what: &[Region]) -> Vec<Region> {
    what.iter().fold(from.to_vec(), |left, cut| {
        left.iter()
            .flat_map(|region| region.subtract(cut))
            .collect()
    })
}

#[cfg(test)]
mod tests;
