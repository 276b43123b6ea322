//! A virtual machine as a host's environment.

use std::collections::BTreeMap;
use std::io;

use boot::Flavour;
use serde_json::{Value, json};

use super::accelerator::Accelerator;
use super::guest::Guest;
use super::machine::Shape;
use super::{machines, requirements};
use crate::agent::client::Agent;
use crate::environment::{Environment, EnvironmentSpec, Kind};
use crate::error::Error;
use crate::network::Network;
use crate::process::child::Child;
use crate::process::program::Program;

pub(crate) const KIND: Kind = Kind {
    name: "vm",
    guest: true,
    probe: || requirements::probe(Flavour::Cloud),
    look: requirements::check,
    up: |spec| Ok(Box::new(Vm::up(Flavour::Cloud, spec)?)),
};

pub(crate) const RT_KIND: Kind = Kind {
    name: "vm-rt",
    guest: true,
    probe: || requirements::probe(Flavour::Rt),
    look: requirements::check,
    up: |spec| Ok(Box::new(Vm::up(Flavour::Rt, spec)?)),
};

/// A host's virtual machine.
#[derive(Debug)]
pub(super) struct Vm {
    pub(super) guest: Guest,
}

impl Vm {
    pub(super) fn up(flavour: Flavour, spec: EnvironmentSpec<'_>) -> Result<Self, Error> {
        let machine = machines::acquire(Shape {
            flavour,
            cpus: spec.cpus.to_vec(),
            links: spec.links,
            huge_pages: spec.huge_pages,
        })?;
        Ok(Self {
            guest: Guest::new(machine),
        })
    }
}

impl Environment for Vm {
    fn network(&self) -> &Network {
        &self.guest.machine().network
    }

    fn start(&self, program: Program) -> io::Result<Child> {
        self.guest.machine().start(program)
    }

    fn guest(&self) -> Option<&Guest> {
        Some(&self.guest)
    }

    fn agent(&self) -> Option<&Agent> {
        Some(&self.guest.machine().agent)
    }

    fn facts(&self) -> BTreeMap<&'static str, Value> {
        let machine = self.guest.machine();
        BTreeMap::from([
            ("kernel", json!(machine.kernel)),
            ("accelerator", json!(machine.accelerator.name())),
            ("vhost", json!(machine.vhost)),
            ("emulated", json!(machine.accelerator == Accelerator::Tcg)),
            ("huge_pages", json!(machine.shape.huge_pages)),
            ("ready_after_s", json!(machine.ready_after.as_secs_f64())),
        ])
    }
}
