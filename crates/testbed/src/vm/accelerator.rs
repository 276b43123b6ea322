//! What executes a guest's instructions: this machine's CPUs, where KVM gives them, or an emulator.

use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use boot::{Flavour, Kernel};
use datapath::Missing;

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
    /// KVM, where a guest boots with it, else the emulator.
    pub(super) fn usable() -> Self {
        match kvm_boots() {
            Ok(()) => Self::Kvm,
            Err(_) => Self::Tcg,
        }
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

/// Why this machine's kernel moves no frames of a guest: qemu does it then.
pub(crate) fn vhost() -> Result<(), Missing> {
    match Path::new("/dev/vhost-net").exists() {
        true => Ok(()),
        false => Err(Missing::new(
            "there is no /dev/vhost-net",
            "modprobe vhost_net",
        )),
    }
}

/// Why KVM is of no use here, found out with a guest if there is a kernel for one.
pub(crate) fn kvm() -> Result<(), Missing> {
    super::look()?;
    if let Err(error) = open_kvm() {
        let remedy =
            "modprobe kvm_intel or kvm_amd, on a processor that has its virtualisation enabled";
        return Err(Missing::new(error, remedy));
    }
    if Kernel::kept(Flavour::Cloud).is_none() {
        let what = "/dev/kvm is there; whether a guest boots with it is seen with the first";
        let remedy = "lowroad compare netbench-matrix --quick --arms native/direct,vm/direct";
        return Err(Missing::new(what, remedy));
    }
    kvm_boots().clone().map_err(|why| {
        let what = format!("/dev/kvm is there, and no guest boots with it: {why}");
        Missing::new(
            what,
            "none: virtual machines are emulated here, and their numbers are marked",
        )
    })
}

fn open_kvm() -> Result<(), String> {
    let device = File::options().read(true).write(true).open("/dev/kvm");
    device
        .map(drop)
        .map_err(|error| format!("/dev/kvm: {error}"))
}

/// Whether a guest boots with KVM. Found out once by each process: a device that is there may be another hypervisor's,
/// in which a stock kernel does not run.
fn kvm_boots() -> &'static Result<(), String> {
    static BOOTS: OnceLock<Result<(), String>> = OnceLock::new();
    BOOTS.get_or_init(|| {
        let boots = boot_and_end();
        if let Err(why) = &boots {
            tracing::info!("virtual machines are emulated: {why}");
        }
        boots
    })
}

fn boot_and_end() -> Result<(), String> {
    open_kvm()?;
    let shape = Shape {
        flavour: Flavour::Cloud,
        cpus: Vec::new(),
        links: 0,
        huge_pages: false,
    };
    Machine::boot(shape, Accelerator::Kvm, &crate::clean::unique("kvm"), PROBE)
        .map(drop)
        .map_err(|error| error.to_string())
}
