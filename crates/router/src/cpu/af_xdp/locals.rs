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
    map: MapHandle,
    /// Addresses as packets carry them, and their next hops.
    hosts: HashMap<Vec<u8>, NextHop>,
    /// Next hops that mean this host.
    local: HashSet<NextHop>,
}

impl Locals {
    pub(super) fn new(object: &Loaded) -> Result<Self, Error> {
        let known = |map| {
            Ok::<_, Error>(Known {
                map: object.map(map)?,
                hosts: HashMap::new(),
                local: HashSet::new(),
            })
        };
        Ok(Self {
            v4: known("local4")?,
            v6: known("local6")?,
        })
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
        match (before, now) {
            (false, true) => write(&self.map, address, &[1]),
            (true, false) => {
                let erased = self.map.delete(address);
                erased.map_err(failed("forgetting an address of this host"))
            }
            _ => Ok(()),
        }
    }
}
