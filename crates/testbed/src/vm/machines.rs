//! Booted machines that wait for the next bed.

use std::time::Duration;

use super::kvm;
use super::machine::{Machine, Shape};
use super::requirements;
use crate::error::Error;
use crate::names;
use crate::pool::Pool;

/// An emulated guest may take this long to boot beside other work.
const BOOT_TIMEOUT: Duration = Duration::from_secs(90);

/// Paused machines without a bed.
pub(crate) static MACHINES: Pool<Machine> = Pool::new();

/// A machine of this shape: one from the pool, else a new one.
pub(super) fn acquire(shape: Shape) -> Result<Machine, Error> {
    match take(&shape) {
        Some(machine) => Ok(machine),
        None => boot(shape),
    }
}

/// Boots a machine, and pauses it until a bed takes it.
pub(super) fn boot_into_pool(shape: Shape) -> Result<(), Error> {
    let machine = boot(shape)?;
    machine.pause().map_err(|error| Error::Guest {
        name: machine.kernel.clone(),
        what: error.to_string(),
    })?;
    MACHINES.put(machine);
    Ok(())
}

/// A machine from the pool that still answers; those that do not end here.
fn take(shape: &Shape) -> Option<Machine> {
    loop {
        let machine = MACHINES.take(|machine| machine.shape == *shape)?;
        if machine.resume().is_ok() && machine.agent.ping().is_ok() {
            return Some(machine);
        }
    }
}

fn boot(shape: Shape) -> Result<Machine, Error> {
    requirements::probe(shape.flavour)?;
    Machine::boot(
        shape,
        kvm::accelerator(),
        &names::unique("vm"),
        BOOT_TIMEOUT,
    )
}
