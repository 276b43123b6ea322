//! Base chains: which packets meet them, and in which order.

use acl::Action;

use super::Tables;
use crate::error::{Fault, Place};
use crate::rules::compile::{self, Chain, Then};
use crate::rules::{Note, NoteKind, RuleSet};

pub(super) struct Base<'a> {
    pub(super) chain: usize,
    pub(super) family: &'a str,
    pub(super) hook: &'a str,
    pub(super) priority: i64,
    /// Only the first packet of a connection meets it.
    pub(super) nat: bool,
}

impl Base<'_> {
    /// Whether packets meet it outside of the hooks of IP.
    pub(super) fn outside(&self) -> bool {
        matches!(self.family, "bridge" | "netdev") || matches!(self.hook, "ingress" | "egress")
    }
}

/// Whether a table's packets are IPv6, for each of its families.
pub(super) fn families(family: &str) -> &'static [bool] {
    match family {
        "ip" => &[false],
        "ip6" => &[true],
        "inet" => &[false, true],
        _ => &[],
    }
}

/// Each family by itself, as a policy is only for the packets of its table's families.
pub(super) fn compile(mut tables: Tables<'_>, path: &[&str]) -> Result<RuleSet, Fault> {
    for base in tables.bases.iter().filter(|base| base.nat) {
        let chain = &mut tables.chains[base.chain];
        if only_first_packets(chain) {
            let origin = &tables.origins[chain.origin as usize];
            let what = "only the first packets of connections meet it: what it does not accept is left to the kernel";
            tables.notes.push(Note {
                place: origin.place,
                kind: NoteKind::Punted,
                what: format!("{}: {what}", origin.text),
            });
        }
    }
    // Chains of one priority may be met in any order: what one of them drops is dropped.
    tables.bases.sort_by_key(|base| base.priority);
    let met = |v6: bool| -> Vec<usize> {
        let on = |hook: &&str| {
            let of = |base: &&Base<'_>| base.hook == *hook && families(base.family).contains(&v6);
            let met = tables.bases.iter().filter(of);
            met.map(|base| base.chain).collect::<Vec<_>>()
        };
        path.iter().flat_map(on).collect()
    };
    let families = [(false, "IPv4", met(false)), (true, "IPv6", met(true))];
    if families.iter().all(|(.., bases)| bases.is_empty()) {
        let what = "no chain that packets of this hook pass";
        return Err(Fault::new(Place::File, what));
    }
    let mut rules = RuleSet {
        origins: tables.origins,
        notes: tables.notes,
        ..RuleSet::default()
    };
    for (v6, name, bases) in families {
        if bases.is_empty() {
            let what = format!("no chain that packets of this hook pass is for {name}: no rules");
            rules.notes.push(Note {
                place: Place::File,
                kind: NoteKind::LeftOut,
                what,
            });
            continue;
        }
        let (origins, notes) = (rules.origins, rules.notes);
        let compiled = compile::compile(&tables.chains, &bases, origins, notes, &[v6])?;
        rules.v4.extend(compiled.v4);
        rules.v6.extend(compiled.v6);
        (rules.origins, rules.notes) = (compiled.origins, compiled.notes);
    }
    Ok(rules)
}

/// Makes a chain certain only of what it accepts; whether that changes anything.
fn only_first_packets(chain: &mut Chain) -> bool {
    let mut changed = false;
    for step in &mut chain.steps {
        let harmless = matches!(
            step.then,
            Then::Decide(Action::Accept) | Then::Return | Then::Continue
        );
        changed |= !harmless;
        step.certain &= harmless;
    }
    if chain.policy == Action::Drop {
        chain.policy = Action::Punt;
        changed = true;
    }
    changed
}
