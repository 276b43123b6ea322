//! A plane in memory: what it was told, checked as it is told.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use lpm::{Fib4, Fib6, Layout4, Layout6, NextHop, Prefix4, Prefix6};
use router::forward::{Adjacency, Cleanup, Compiler, Family, Forwarding, Plane, no_cleanup};

pub(crate) struct Memory {
    pub(crate) v4: Fib4,
    pub(crate) v6: Fib6,
    meanings: HashMap<(Family, NextHop), Forwarding>,
    /// Devices that cannot be sent by.
    pub(crate) unable: Vec<u32>,
    /// Prefixes that there is no room for: a change of one fails.
    pub(crate) full: fn(&str) -> bool,
    /// Families of which all packets are left to the kernel.
    pub(crate) withheld: Vec<Family>,
    /// What it was told since `forget`, as text.
    pub(crate) calls: Vec<String>,
    /// A full table is told without a word.
    pub(crate) quiet: bool,
    /// What compiling rules is.
    pub(crate) compiling: Arc<dyn Fn() + Send + Sync>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            v4: Fib4::new(Layout4::Words).unwrap(),
            v6: Fib6::new(Layout6::Flat).unwrap(),
            meanings: HashMap::new(),
            unable: Vec::new(),
            full: |_| false,
            withheld: Vec::new(),
            calls: Vec::new(),
            quiet: false,
            compiling: Arc::new(|| ()),
        }
    }

    /// What becomes of a packet; `flow` chooses of a group.
    pub(crate) fn forward(&self, to: IpAddr, flow: usize) -> Option<Forwarding> {
        let (family, hop) = match to {
            IpAddr::V4(to) => (Family::V4, self.v4.lookup(to.to_bits())?),
            IpAddr::V6(to) => (Family::V6, self.v6.lookup(to.to_bits())?),
        };
        let meaning = &self.meanings[&(family, hop)];
        let Forwarding::Group(members) = meaning else {
            return Some(meaning.clone());
        };
        let hops = members
            .iter()
            .flat_map(|member| std::iter::repeat_n(member.hop, usize::from(member.weight)));
        let hops: Vec<NextHop> = hops.collect();
        Some(self.meanings[&(family, hops[flow % hops.len()])].clone())
    }

    pub(crate) fn neighbour(&self, to: IpAddr, flow: usize) -> Option<Adjacency> {
        match self.forward(to, flow) {
            Some(Forwarding::Neighbour(adjacency)) => Some(adjacency),
            _ => None,
        }
    }

    fn note(&mut self, call: impl FnOnce() -> String) {
        if !self.quiet {
            self.calls.push(call());
        }
    }

    fn means_something(&self, family: Family, hop: Option<NextHop>) {
        if let Some(hop) = hop {
            let known = self.meanings.get(&(family, hop));
            assert!(known.is_some(), "{family:?} {hop:?} was given no meaning");
        }
    }
}

/// A device without what the plane needs, or no room.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unable {
    #[error("cannot send by device {0}")]
    Device(u32),
    #[error("no room")]
    Full,
}

impl From<Infallible> for Unable {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl Plane for Memory {
    type Error = Unable;
    type RuleTables = ();

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Unable> {
        self.means_something(Family::V4, hop);
        if (self.full)(&prefix.to_string()) {
            return Err(Unable::Full);
        }
        match hop {
            Some(hop) => drop(self.v4.insert(prefix, hop).unwrap()),
            None => assert!(self.v4.remove(prefix).is_some(), "{prefix} was not there"),
        }
        self.note(|| format!("{prefix} {:?}", hop.map(NextHop::get)));
        Ok(())
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Unable> {
        self.means_something(Family::V6, hop);
        if (self.full)(&prefix.to_string()) {
            return Err(Unable::Full);
        }
        match hop {
            Some(hop) => drop(self.v6.insert(prefix, hop).unwrap()),
            None => assert!(
                self.v6.remove(prefix).unwrap().is_some(),
                "{prefix} was not there"
            ),
        }
        self.note(|| format!("{prefix} {:?}", hop.map(NextHop::get)));
        Ok(())
    }

    fn next_hop(&mut self, family: Family, hop: NextHop, to: &Forwarding) -> Result<(), Unable> {
        match to {
            Forwarding::Neighbour(adjacency) if self.unable.contains(&adjacency.ifindex) => {
                return Err(Unable::Device(adjacency.ifindex));
            }
            Forwarding::Group(members) => {
                assert!(members.len() > 1);
                for member in members {
                    let meaning = &self.meanings[&(family, member.hop)];
                    assert!(
                        !matches!(meaning, Forwarding::Group(_)),
                        "a group in a group"
                    );
                    assert!(member.weight > 0);
                }
            }
            _ => {}
        }
        self.meanings.insert((family, hop), to.clone());
        self.note(|| format!("{family:?} {} = {to:?}", hop.get()));
        Ok(())
    }

    fn withhold(&mut self, family: Family, on: bool) -> Result<(), Unable> {
        self.withheld.retain(|withheld| *withheld != family);
        self.withheld.extend(on.then_some(family));
        Ok(())
    }

    fn compiler(&self) -> Compiler<(), Unable> {
        let compiling = self.compiling.clone();
        Box::new(move |_| {
            compiling();
            Ok(())
        })
    }

    fn enforce(&mut self, (): ()) -> Result<Cleanup, Unable> {
        self.note(|| "rules".to_owned());
        Ok(no_cleanup())
    }
}
