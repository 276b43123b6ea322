//! An engine's container as a host's environment.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;

use super::cli::Engine;
use super::container::{self, Container, Shape};
use crate::agent::client::Agent;
use crate::environment::{EngineNetwork, Environment, EnvironmentSpec};
use crate::error::Error;
use crate::network::Network;
use crate::process::child::Child;
use crate::process::program::Program;

/// A container of this engine: one from the pool, else a new one.
pub(in crate::environment) fn up(
    engine: &'static Engine,
    spec: EnvironmentSpec<'_>,
) -> Result<Box<dyn Environment>, Error> {
    let shape = Shape {
        engine: engine.name,
        cpus: spec.cpus.to_vec(),
        publish: spec.publish.to_vec(),
        capabilities: spec.capabilities.to_vec(),
    };
    let container = match container::take(&shape) {
        Some(container) => container,
        None => {
            engine.probe()?;
            Container::run(engine, shape)?
        }
    };
    Ok(Box::new(ContainerLease(Some(container))))
}

/// A host's container, for as long as the bed stands.
#[derive(Debug)]
struct ContainerLease(Option<Container>);

impl ContainerLease {
    fn container(&self) -> &Container {
        self.0.as_ref().expect("it is there until dropped")
    }
}

impl Environment for ContainerLease {
    fn network(&self) -> &Network {
        self.container().network()
    }

    fn start(&self, program: Program) -> io::Result<Child> {
        self.container().start(program)
    }

    fn engine_network(&self) -> Option<&EngineNetwork> {
        self.container().engine_network()
    }

    fn agent(&self) -> Option<&Agent> {
        Some(self.container().agent())
    }

    fn facts(&self) -> BTreeMap<&'static str, Value> {
        self.container().facts()
    }
}

impl Drop for ContainerLease {
    fn drop(&mut self) {
        if let Some(container) = self.0.take() {
            container.give_back();
        }
    }
}
