//! Containers of runc inside a virtual machine: each has a root, processes and mounts of its own, and the network
//! of the machine that it is in.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use boot::Flavour;
use serde_json::Value;

use super::Vm;
use crate::Guest;
use crate::environment::{Child, Contents, Environment, Kind, Network, Program, container_runtime};
use crate::served::{Ready, Served};

pub(crate) const KIND: Kind = Kind {
    name: "vm-oci",
    guest: true,
    probe: || {
        super::probe(Flavour::Cloud)?;
        container_runtime()
    },
    look: || {
        super::look()?;
        container_runtime()
    },
    up: |wanted| {
        container_runtime()?;
        let vm = Vm::up(Flavour::Cloud, wanted)?;
        Ok(Box::new(Contained { vm }))
    },
};

/// In the guest.
const BUNDLES: &str = "/run/bundles";

#[derive(Debug)]
struct Contained {
    vm: Vm,
}

impl Environment for Contained {
    fn network(&self) -> &Network {
        self.vm.network()
    }

    fn start(&self, program: Program) -> io::Result<Child> {
        // One that is kept has those of the beds before.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let id = format!("c{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let bundle = Path::new(BUNDLES).join(&id);
        let mut contents = Contents::of(&program)?;
        // The container has the guest's network, and with it the agent's socket. What runs it waits for nothing.
        let ready = Ready::of(&program, false);
        if let Some(ready) = &ready {
            contents.has(ready.variable());
        }
        let config = contents.config(&id, None, &[], &program).to_string();
        self.vm.guest.write(&bundle.join("config.json"), &config)?;
        // Its root has to be a folder that is there.
        self.vm.guest.write(&bundle.join("rootfs/.made"), "")?;
        // A file system that the kernel has unpacked is no mount that could be put away: no pivot.
        let mut runner = Program::new("runc").args(["run", "--no-pivot", "--bundle"]);
        runner = runner.args([bundle.as_os_str(), id.as_ref()]);
        let (_, folder) = program.apart();
        for file in contents.files {
            if folder != Some(&file) {
                runner = runner.needs(file);
            }
        }
        let machine = self.vm.guest.machine();
        machine.start_heard(program.run_by(runner), ready.as_ref())
    }

    fn guest(&self) -> Option<&Guest> {
        self.vm.guest()
    }

    fn served(&self) -> Option<&Served> {
        self.vm.served()
    }

    fn facts(&self) -> BTreeMap<&'static str, Value> {
        self.vm.facts()
    }
}
