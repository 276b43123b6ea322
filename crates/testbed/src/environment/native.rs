//! A network namespace of this machine, sharing everything else.

use std::io;

use super::{Environment, Kind};
use crate::network::{Network, root};
use crate::process::child::Child;
use crate::process::program::Program;
use crate::process::sd_notify::{NOTIFY_SOCKET, NotifySocket};

pub(crate) const KIND: Kind = Kind {
    name: "native",
    guest: false,
    probe: root,
    look: root,
    up: |spec| {
        root()?;
        let network = Network::create(spec.name, spec.cpus)?;
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
        let ready = NotifySocket::bind(program.notifies_ready())?;
        let mut command = program.command();
        if let Some(ready) = &ready {
            command.env(NOTIFY_SOCKET, ready.path());
        }
        let mut child = self.network.spawn(command)?;
        child.listen(ready);
        Ok(child)
    }
}
