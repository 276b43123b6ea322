//! A network namespace of this machine, sharing everything else.

use std::io;

use super::{Child, Environment, Kind, Network, Program, root};

pub(super) const KIND: Kind = Kind {
    name: "native",
    probe: root,
    look: root,
    up: |wanted| {
        let network = Network::create(wanted)?;
        Ok(Box::new(Native { network }))
    },
};

#[derive(Debug)]
struct Native {
    network: Network,
}

impl Environment for Native {
    fn network(&self) -> &Network {
        &self.network
    }

    fn start(&self, program: Program) -> io::Result<Child> {
        self.network.spawn(program.command())
    }
}
