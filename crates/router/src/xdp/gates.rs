//! What comes in by ports: which frames are the router's, and which of their packets the kernel's.

use bpf::Map;

use super::{Error, Port, entries};
use crate::forward::Family;
use crate::policy::{Pair, Policy, Restraint};
use crate::skel::router::types;

#[derive(Debug)]
pub(super) struct Gates {
    ports: Vec<Port>,
    port_map: Map<types::port_key, types::port>,
    pair_map: Map<types::pair, u8>,
    restraint: Restraint,
}

impl Gates {
    /// Without ports and without a policy.
    pub(super) fn new(
        port_map: Map<types::port_key, types::port>,
        pair_map: Map<types::pair, u8>,
    ) -> Self {
        Self {
            ports: Vec::new(),
            port_map,
            pair_map,
            restraint: Restraint::default(),
        }
    }

    /// Takes in what comes by these ports, and nothing else.
    pub(super) fn open(&mut self, ports: &[Port]) -> Result<(), Error> {
        for port in ports {
            self.write(port)?;
        }
        let gone = |port: &&Port| !ports.iter().any(|now| now.key() == port.key());
        for port in self.ports.iter().filter(gone) {
            self.port_map.remove(&entries::port_key(port))?;
        }
        self.ports = ports.to_vec();
        Ok(())
    }

    /// Takes in what comes by the ports of another program, under the same policy.
    pub(super) fn copy(&mut self, other: &Self) -> Result<(), Error> {
        self.restraint.sole_filter = other.restraint.sole_filter;
        if let Some(policy) = &other.restraint.policy {
            self.set_policy(policy.clone())?;
        }
        self.open(&other.ports)
    }

    /// A packet may meet the old policy for one port and the new one for another, and never less than one of both.
    pub(super) fn set_policy(&mut self, policy: Policy) -> Result<(), Error> {
        let before = self.restraint.policy.replace(policy);
        let now = self.restraint.policy.iter().flat_map(|now| &now.pairs);
        let known = |pair: &&Pair| before.as_ref().is_some_and(|old| old.pairs.contains(pair));
        let mut written = Ok(());
        for pair in now.filter(|pair| !known(pair)) {
            // Without its entry the pair is the kernel's.
            let entry = self.pair_map.set(&entries::pair(pair), &1);
            written = written.and(entry);
        }
        self.rewrite()?;
        let gone = before.iter().flat_map(|old| &old.pairs);
        let stays = |pair: &&Pair| {
            let now = self.restraint.policy.as_ref();
            now.is_some_and(|now| now.pairs.contains(pair))
        };
        for pair in gone.filter(|pair| !stays(pair)) {
            // One that found no room is not there.
            let _gone = self.pair_map.remove(&entries::pair(pair));
        }
        Ok(written?)
    }

    pub(super) fn withhold(&mut self, family: Family, on: bool) -> Result<(), Error> {
        self.restraint.withhold(family, on);
        self.rewrite()
    }

    fn rewrite(&self) -> Result<(), Error> {
        self.ports.iter().try_for_each(|port| self.write(port))
    }

    fn write(&self, port: &Port) -> Result<(), Error> {
        let policy = self.restraint.of(port.place());
        let entry = entries::port(port, &policy);
        Ok(self.port_map.set(&entries::port_key(port), &entry)?)
    }
}
