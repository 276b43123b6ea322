//! A network namespace of this machine, sharing everything else.

use std::io;

use super::ready::{NOTIFY_SOCKET, Ready};
use super::{Child, Environment, Kind, Network, Program, root};

pub(super) const KIND: Kind = Kind {
    name: "native",
    guest: false,
    probe: root,
    look: root,
    up: |wanted| {
        root()?;
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
        let ready = Ready::of(program.tells_ready())?;
        let mut command = program.command();
        if let Some(ready) = &ready {
            command.env(NOTIFY_SOCKET, ready.path());
        }
        let mut child = self.network.spawn(command)?;
        child.hears(ready);
        Ok(child)
    }
}
