//! The pools of virtual machines and of engines' containers, and when their instances end.

use std::thread;

use crate::environment::engine::container::{CONTAINERS, Container};
use crate::environment::engine::image::IMAGES;
use crate::pool;
use crate::vm::machine::Machine;
use crate::vm::machines::MACHINES;

/// While there is one, virtual machines and engines' containers stay for the next bed when their bed is dropped.
/// They end with the last of these, and those that start quickly with [`InstancePool::end_of_block`].
#[derive(Debug)]
pub struct InstancePool(());

impl InstancePool {
    pub fn new() -> Self {
        pool::hold();
        Self(())
    }

    /// Ends the instances without a bed, so that the next block has others. Emulated machines stay: they take seconds
    /// to boot, and nothing is compared with them.
    pub fn end_of_block(&self) {
        let machines = MACHINES.take_all(Machine::is_fast);
        end(machines, CONTAINERS.take_all(|_| true));
    }
}

/// Ends them all at once: each engine has to be waited for.
fn end(machines: Vec<Machine>, containers: Vec<Container>) {
    thread::scope(|scope| {
        for machine in machines {
            scope.spawn(|| drop(machine));
        }
        for container in containers {
            scope.spawn(|| drop(container));
        }
    });
}

impl Default for InstancePool {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for InstancePool {
    fn drop(&mut self) {
        let instances = pool::release(|| {
            let machines = MACHINES.take_all(|_| true);
            let containers = CONTAINERS.take_all(|_| true);
            (machines, containers, IMAGES.take_all(|_| true))
        });
        if let Some((machines, containers, images)) = instances {
            end(machines, containers);
            // An engine refuses to remove an image while there are containers of it.
            drop(images);
        }
    }
}
