//! Whether KVM works here, which a guest shows.

use std::fs::File;
use std::sync::OnceLock;
use std::time::Duration;

use boot::{Flavour, Kernel};
use datapath::Missing;

use super::accelerator::Accelerator;
use super::machine::{Machine, Shape};
use super::requirements;
use crate::names;

/// How long a guest may take to show that KVM works.
const PROBE_TIMEOUT: Duration = Duration::from_secs(9);

/// KVM where a guest boots with it, else the emulator.
pub(super) fn accelerator() -> Accelerator {
    match kvm_boots() {
        Ok(()) => Accelerator::Kvm,
        Err(_) => Accelerator::Tcg,
    }
}

/// Why KVM does not work here. A guest is booted to find out, if there is a kernel for one.
pub(crate) fn kvm() -> Result<(), Missing> {
    requirements::check()?;
    if let Err(error) = open_kvm() {
        let remedy =
            "modprobe kvm_intel or kvm_amd, on a processor that has its virtualisation enabled";
        return Err(Missing::new(error, remedy));
    }
    if Kernel::cached(Flavour::Cloud).is_none() {
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

/// Whether a guest boots with KVM. Each process finds out once: the device may belong to another hypervisor, in which
/// a stock kernel does not run.
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
    Machine::boot(
        shape,
        Accelerator::Kvm,
        &names::unique("kvm"),
        PROBE_TIMEOUT,
    )
    .map(drop)
    .map_err(|error| error.to_string())
}
