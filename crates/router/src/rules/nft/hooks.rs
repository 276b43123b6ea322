//! Base chains: which packets meet them, and in which order.

use acl::Action;

use super::Tables;
use crate::error::{Fault, Place};
use crate::rules::compile::{self, Verdict};
use crate::rules::{NoteKind, RuleSet, hook};

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
    // Chains of one priority may be met in any order: what one of them drops is dropped.
    tables.bases.sort_by_key(|base| base.priority);
    let on_path = |base: &Base<'_>| path.contains(&base.hook) && !families(base.family).is_empty();
    let met: Vec<usize> = tables
        .bases
        .iter()
        .filter(|base| on_path(base))
        .map(|base| base.chain)
        .collect();
    if met.is_empty() {
        return Err(Fault::new(Place::File, hook::NO_CHAIN));
    }
    for at in 0..tables.bases.len() {
        let base = &tables.bases[at];
        if base.nat && on_path(base) {
            let chain = base.chain;
            only_first_packets(&mut tables, chain)?;
        }
    }
    account(&mut tables, met)?;
    let bases = |v6: bool| -> Vec<usize> {
        let on = |hook: &&str| {
            let of = |base: &&Base<'_>| base.hook == *hook && families(base.family).contains(&v6);
            let met = tables.bases.iter().filter(of);
            met.map(|base| base.chain).collect::<Vec<_>>()
        };
        path.iter().flat_map(on).collect()
    };
    let mut set = tables.set;
    for (v6, name, bases) in [(false, "IPv4", bases(false)), (true, "IPv6", bases(true))] {
        if bases.is_empty() {
            let what = format!("no chain that packets of this hook pass is for {name}: no rules");
            let noted = set.note(Place::File, NoteKind::LeftOut, what, tables.budget);
            noted.map_err(|exhausted| Fault::new(Place::File, exhausted))?;
            continue;
        }
        set = compile::compile(&tables.chains, &bases, set, &[v6], tables.budget)?;
    }
    Ok(set)
}

/// Says what of the rules that packets meet is not done here, and which rules they do not meet.
fn account(tables: &mut Tables<'_>, met: Vec<usize>) -> Result<(), Fault> {
    let reachable = compile::find_reachable(&tables.chains, met);
    let rules = std::mem::take(&mut tables.rules);
    let refused = rules.iter().filter(|rule| rule.parsed.refusal.is_some());
    let refused = refused.map(|rule| rule.table).collect();
    for rule in rules.iter().filter(|rule| reachable[rule.chain]) {
        tables.account(rule, &refused)?;
    }
    let unmet = rules.iter().filter(|rule| !reachable[rule.chain]);
    let unmet = unmet.map(|rule| (Place::Entry(rule.number), rule.chain_name()));
    if let Some((place, what)) = hook::describe_unreachable(unmet) {
        let noted = tables
            .set
            .note(place, NoteKind::LeftOut, what, tables.budget);
        noted.map_err(|exhausted| Fault::new(place, exhausted))?;
    }
    Ok(())
}

/// Makes a chain certain only of what it accepts, and says so where that changes anything.
fn only_first_packets(tables: &mut Tables<'_>, at: usize) -> Result<(), Fault> {
    let chain = &mut tables.chains[at];
    let mut changed = false;
    for step in &mut chain.steps {
        let harmless = matches!(
            step.verdict,
            Verdict::Decide(Action::Accept) | Verdict::Return | Verdict::Continue
        );
        changed |= !harmless;
        step.certain &= harmless;
    }
    if chain.policy == Action::Drop {
        chain.policy = Action::Punt;
        changed = true;
    }
    if !changed {
        return Ok(());
    }
    let origin = &tables.set.origins[chain.origin as usize];
    let what = "only the first packets of connections meet it: what it does not accept is left to the kernel";
    let (place, what) = (origin.place, format!("{}: {what}", origin.text));
    let noted = tables
        .set
        .note(place, NoteKind::Punted, what, tables.budget);
    noted.map_err(|exhausted| Fault::new(place, exhausted))
}
