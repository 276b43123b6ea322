//! Containers of runc inside a virtual machine: each has a root, processes and mounts of its own, and the network
//! of the machine that it is in.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use boot::Flavour;
use serde_json::Value;

use super::environment::Vm;
use super::guest::Guest;
use super::requirements;
use crate::agent::client::Agent;
use crate::agent::notify::NotifyAddress;
use crate::environment::oci::{Bundle, runtime};
use crate::environment::{Environment, Kind};
use crate::network::Network;
use crate::process::child::Child;
use crate::process::program::Program;

pub(crate) const KIND: Kind = Kind {
    name: "vm-oci",
    guest: true,
    probe: || {
        requirements::probe(Flavour::Cloud)?;
        runtime()
    },
    look: || {
        requirements::check()?;
        runtime()
    },
    up: |spec| {
        runtime()?;
        let vm = Vm::up(Flavour::Cloud, spec)?;
        Ok(Box::new(VmContainer { vm }))
    },
};

/// In the guest.
const BUNDLES: &str = "/run/bundles";

#[derive(Debug)]
struct VmContainer {
    vm: Vm,
}

impl Environment for VmContainer {
    fn network(&self) -> &Network {
        self.vm.network()
    }

    fn start(&self, program: Program) -> io::Result<Child> {
        // A machine from the pool has those of earlier beds.
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let id = format!("c{}", NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let bundle = Path::new(BUNDLES).join(&id);
        let mut contents = Bundle::new(&program)?;
        // The container has the guest's network, and with it the agent's socket. Nothing waits for runc itself.
        let ready = NotifyAddress::new(&program, false);
        if let Some(ready) = &ready {
            contents.set_variable(ready.variable());
        }
        let config = contents.config(&id, None, &[], &program).to_string();
        self.vm.guest.write(&bundle.join("config.json"), &config)?;
        // Its root has to be a folder that is there.
        self.vm.guest.write(&bundle.join("rootfs/.made"), "")?;
        // A root that the kernel has unpacked is not a mount that could be pivoted away.
        let mut runner = Program::new("runc").args(["run", "--no-pivot", "--bundle"]);
        runner = runner.args([bundle.as_os_str(), id.as_ref()]);
        let (_, folder) = program.files_and_folder();
        for file in contents.files {
            if folder != Some(&file) {
                runner = runner.needs(file);
            }
        }
        let machine = self.vm.guest.machine();
        machine.start_with(program.run_by(runner), ready.as_ref())
    }

    fn guest(&self) -> Option<&Guest> {
        self.vm.guest()
    }

    fn agent(&self) -> Option<&Agent> {
        self.vm.agent()
    }

    fn facts(&self) -> BTreeMap<&'static str, Value> {
        self.vm.facts()
    }
}
