//! What executes a guest's instructions: this machine's CPUs, where KVM gives them, or an emulator.

use std::fs::File;
use std::sync::OnceLock;
use std::time::Duration;

use boot::Flavour;

use super::machine::{Machine, Shape};

/// How long a guest may take to show that KVM is of use.
const PROBE: Duration = Duration::from_secs(9);

/// What executes a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    /// QEMU's emulator: what is measured in there is its speed, and no virtual machine's.
    Tcg,
}

impl Accelerator {
    /// KVM, where a guest boots with it, else the emulator. Found out once by each process: a device
    /// that is there may be another hypervisor's, in which a stock kernel does not run.
    pub(super) fn usable() -> Self {
        static USABLE: OnceLock<Accelerator> = OnceLock::new();
        *USABLE.get_or_init(|| match kvm_boots() {
            Ok(()) => Self::Kvm,
            Err(why) => {
                tracing::info!("virtual machines are emulated: {why}");
                Self::Tcg
            }
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    pub(super) fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg", "-cpu", "max"],
        }
    }
}

/// Boots a guest with KVM, and takes it down.
fn kvm_boots() -> Result<(), String> {
    let device = File::options().read(true).write(true).open("/dev/kvm");
    device.map_err(|error| format!("/dev/kvm: {error}"))?;
    let shape = Shape {
        flavour: Flavour::Cloud,
        cpus: Vec::new(),
        links: 0,
    };
    Machine::boot(shape, Accelerator::Kvm, &super::name("kvm"), PROBE)
        .map(drop)
        .map_err(|error| error.to_string())
}
