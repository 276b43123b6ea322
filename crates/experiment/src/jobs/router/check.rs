//! Which loads the router can be offered: tables, traffic and options that go together.

use super::arms::{self, TableKind};
use super::load::{Load, Measure, OFFERED_OPTION};
use super::tables::{Table, Traffic};
use super::{forwarding, process};

/// Whether the router can be offered the load, and measured so under it.
pub(super) fn check(load: &Load, measure: Measure) -> Result<(), String> {
    let Some(table) = &load.table else {
        return Err("a router needs a table: ipv4, ipv6 or rules".to_owned());
    };
    if load.flows.is_some() && measure != Measure::Forward {
        return Err(
            "a router has a table, traffic and options: leave out the keys of packets".to_owned(),
        );
    }
    if let Table::Ipv4(0) | Table::Ipv6(0) = table {
        return Err("the table has no prefixes".to_owned());
    }
    if load
        .next_hops
        .is_some_and(|hops| !(1..=32_767).contains(&hops))
    {
        return Err("next-hops is from 1 to 32767".to_owned());
    }
    if load.next_hops.is_some() && arms::table_kind(table) == TableKind::Rules {
        return Err("rules have no next hops".to_owned());
    }
    match measure {
        Measure::Lookup => check_traffic(table, load.traffic),
        Measure::Updates => check_updates(load),
        Measure::Forward => check_forwarding(table, load),
        Measure::Process => process::check_load(load),
        Measure::Build if load.traffic.is_some() || !load.options.is_empty() => {
            Err("a build has no traffic and no options".to_owned())
        }
        Measure::Build => Ok(()),
    }
}

fn check_traffic(table: &Table, traffic: Option<Traffic>) -> Result<(), String> {
    use Traffic::{In32, Pcap, PerPrefix, Rules, Sequential, Uniform, UniformPrefix, Zipf};
    let known: &[Traffic] = match table {
        Table::Ipv4(_) => &[Uniform, PerPrefix, Zipf, Sequential],
        Table::Ipv6(_) => &[UniformPrefix, In32, Zipf],
        Table::Rules(_) => &[Rules, Uniform, Pcap],
    };
    if traffic.is_some_and(|traffic| known.contains(&traffic)) {
        return Ok(());
    }
    let known: Vec<_> = known.iter().map(Traffic::to_string).collect();
    Err(format!("traffic of {table} is {}", known.join(", ")))
}

/// Flows that a load of forwarding may have: each has a frame of its own.
const MAX_FLOWS: usize = 1 << 20;

fn check_forwarding(table: &Table, load: &Load) -> Result<(), String> {
    let Table::Ipv4(_) = table else {
        return Err("forwarding is measured with an ipv4 table".to_owned());
    };
    if !load
        .flows
        .is_some_and(|flows| (1..=MAX_FLOWS).contains(&flows))
    {
        return Err(format!("forwarding needs flows, 1 to {MAX_FLOWS}"));
    }
    if load
        .next_hops
        .is_some_and(|hops| hops > forwarding::MAX_NEXT_HOPS)
    {
        let most = forwarding::MAX_NEXT_HOPS;
        return Err(format!("there is one link: at most {most} next hops"));
    }
    check_traffic(table, load.traffic)?;
    forwarding::check_options(load)
}

fn check_updates(load: &Load) -> Result<(), String> {
    if load.traffic.is_some() {
        return Err("updates have no traffic".to_owned());
    }
    for (name, value) in &load.options {
        if name != OFFERED_OPTION || value.as_integer().is_none_or(|rate| rate <= 0) {
            return Err("the one option of updates is offered, how many a second".to_owned());
        }
    }
    Ok(())
}
