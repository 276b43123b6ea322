//! This host's addresses, which the steering program leaves to the stack: routes of full length to a
//! next hop that means this host.

use std::collections::{HashMap, HashSet};

use bpf::Map;
use datapath::Error;
use lpm::{NextHop, Prefix4, Prefix6};

use super::steering::Steering;
use crate::forward::{Family, Forwarding, Punt};

#[derive(Debug)]
pub(super) struct Locals {
    v4: HostAddresses<4>,
    v6: HostAddresses<16>,
}

/// The addresses of one family, which have `N` bytes.
#[derive(Debug)]
struct HostAddresses<const N: usize> {
    /// None while no program looks at it.
    map: Option<Map<[u8; N], u8>>,
    /// Addresses as packets carry them, and their next hops.
    hosts: HashMap<[u8; N], NextHop>,
    /// Next hops that mean this host.
    local: HashSet<NextHop>,
}

impl Locals {
    /// Of no program yet.
    pub(super) fn new() -> Self {
        Self {
            v4: HostAddresses::new(),
            v6: HostAddresses::new(),
        }
    }

    /// Has the program know them from now on.
    pub(super) fn connect(&mut self, steering: &Steering) -> Result<(), Error> {
        self.v4.connect(steering.local4.try_clone()?)?;
        self.v6.connect(steering.local6.try_clone()?)
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
        self.v4.route(prefix.first().to_be_bytes(), hop)
    }

    pub(super) fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        if prefix.len() < 128 {
            return Ok(());
        }
        self.v6.route(prefix.first().to_be_bytes(), hop)
    }

    pub(super) fn next_hop(
        &mut self,
        family: Family,
        hop: NextHop,
        to: &Forwarding,
    ) -> Result<(), Error> {
        let is_local = *to == Forwarding::Punt(Punt::Local);
        match family {
            Family::V4 => self.v4.next_hop(hop, is_local),
            Family::V6 => self.v6.next_hop(hop, is_local),
        }
    }
}

impl<const N: usize> HostAddresses<N> {
    fn new() -> Self {
        Self {
            map: None,
            hosts: HashMap::new(),
            local: HashSet::new(),
        }
    }

    fn connect(&mut self, map: Map<[u8; N], u8>) -> Result<(), Error> {
        for address in self.addresses() {
            map.set(address, &1)?;
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
    fn addresses(&self) -> impl Iterator<Item = &[u8; N]> {
        let hosts = self.hosts.iter();
        hosts
            .filter(|(_, hop)| self.local.contains(*hop))
            .map(|(address, _)| address)
    }

    fn route(&mut self, address: [u8; N], hop: Option<NextHop>) -> Result<(), Error> {
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

    fn set(&self, address: &[u8; N], before: bool, now: bool) -> Result<(), Error> {
        let Some(map) = &self.map else {
            return Ok(());
        };
        match (before, now) {
            (false, true) => Ok(map.set(address, &1)?),
            (true, false) => map
                .remove(address)
                .map_err(|error| Error::failed("forgetting an address of this host", error.source)),
            _ => Ok(()),
        }
    }
}
