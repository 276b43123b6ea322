//! This host's addresses, which the steering program leaves to the stack: routes of full length to a
//! next hop that means this host.

use std::collections::{HashMap, HashSet};

use datapath::Error;
use libbpf_rs::{MapCore, MapHandle};
use lpm::{NextHop, Prefix4, Prefix6};

use super::object::{Loaded, failed, write};
use crate::forward::{Family, Forwarding, Punt};

#[derive(Debug)]
pub(super) struct Locals {
    v4: Known,
    v6: Known,
}

/// Of one family.
#[derive(Debug)]
struct Known {
    /// None while no program looks at it.
    map: Option<MapHandle>,
    /// Addresses as packets carry them, and their next hops.
    hosts: HashMap<Vec<u8>, NextHop>,
    /// Next hops that mean this host.
    local: HashSet<NextHop>,
}

impl Locals {
    /// Of no program yet.
    pub(super) fn new() -> Self {
        let known = || Known {
            map: None,
            hosts: HashMap::new(),
            local: HashSet::new(),
        };
        Self {
            v4: known(),
            v6: known(),
        }
    }

    /// Has the program know them from now on.
    pub(super) fn connect(&mut self, object: &Loaded) -> Result<(), Error> {
        self.v4.connect(object.map("local4")?)?;
        self.v6.connect(object.map("local6")?)
    }

    /// Has the program know these instead of those of `before`. An address of one of both may be
    /// steered as by the other meanwhile: both leave it to the stack.
    pub(super) fn take_over(&mut self, before: &mut Self) -> Result<(), Error> {
        self.v4.take_over(&mut before.v4)?;
        self.v6.take_over(&mut before.v6)
    }

    pub(super) fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        if prefix.len() < 32 {
            return Ok(());
        }
        self.v4.route(prefix.first().to_be_bytes().to_vec(), hop)
    }

    pub(super) fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        if prefix.len() < 128 {
            return Ok(());
        }
        self.v6.route(prefix.first().to_be_bytes().to_vec(), hop)
    }

    pub(super) fn next_hop(
        &mut self,
        family: Family,
        hop: NextHop,
        to: &Forwarding,
    ) -> Result<(), Error> {
        let known = match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        };
        known.next_hop(hop, *to == Forwarding::Punt(Punt::Local))
    }
}

impl Known {
    fn connect(&mut self, map: MapHandle) -> Result<(), Error> {
        for address in self.addresses() {
            write(&map, address, &[1])?;
        }
        self.map = Some(map);
        Ok(())
    }

    fn take_over(&mut self, before: &mut Self) -> Result<(), Error> {
        self.map = before.map.take();
        let (old, new): (HashSet<_>, HashSet<_>) =
            (before.addresses().collect(), self.addresses().collect());
        for address in new.difference(&old) {
            self.set(address, false, true)?;
        }
        for address in old.difference(&new) {
            self.set(address, true, false)?;
        }
        Ok(())
    }

    /// Those that are this host's.
    fn addresses(&self) -> impl Iterator<Item = &Vec<u8>> {
        let hosts = self.hosts.iter();
        hosts
            .filter(|(_, hop)| self.local.contains(*hop))
            .map(|(address, _)| address)
    }

    fn route(&mut self, address: Vec<u8>, hop: Option<NextHop>) -> Result<(), Error> {
        let is_local = |hop: &NextHop| self.local.contains(hop);
        let before = self.hosts.get(&address).is_some_and(is_local);
        let now = hop.as_ref().is_some_and(is_local);
        self.set(&address, before, now)?;
        match hop {
            Some(hop) => self.hosts.insert(address, hop),
            None => self.hosts.remove(&address),
        };
        Ok(())
    }

    fn next_hop(&mut self, hop: NextHop, now: bool) -> Result<(), Error> {
        let before = self.local.contains(&hop);
        if before == now {
            return Ok(());
        }
        for (address, _) in self.hosts.iter().filter(|(_, other)| **other == hop) {
            self.set(address, before, now)?;
        }
        if now {
            self.local.insert(hop);
        } else {
            self.local.remove(&hop);
        }
        Ok(())
    }

    fn set(&self, address: &[u8], before: bool, now: bool) -> Result<(), Error> {
        let Some(map) = &self.map else {
            return Ok(());
        };
        match (before, now) {
            (false, true) => write(map, address, &[1]),
            (true, false) => {
                let erased = map.delete(address);
                erased.map_err(failed("forgetting an address of this host"))
            }
            _ => Ok(()),
        }
    }
}
